// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/minibatches.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.hpp"
#include "kernels/device/random.hpp"

namespace gyr {

namespace {

// 0 to n - 1, sorted by the numbers of a random stream.
std::vector<Index> drawn_order(std::uint64_t seed, const std::string& stream_name, Index n) {
  const Stream stream(seed, stream_name);
  std::vector<Index> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return stream.uniform(a) < stream.uniform(b); });
  return order;
}

}  // namespace

std::vector<std::vector<Index>> draw_minibatches(std::uint64_t seed, std::int64_t iteration, Index rollouts, Index minibatches) {
  ensure(minibatches > 0 && rollouts % minibatches == 0, "{} minibatches do not divide {} rollouts", minibatches, rollouts);
  const std::vector<Index> order = drawn_order(seed, fmt::format("minibatches {}", iteration), rollouts);
  const Index each = rollouts / minibatches;
  std::vector<std::vector<Index>> all;
  for (Index m = 0; m < minibatches; ++m) {
    all.emplace_back(order.begin() + m * each, order.begin() + (m + 1) * each);
    std::sort(all.back().begin(), all.back().end());
  }
  return all;
}

std::vector<Index> draw_order(std::uint64_t seed, std::int64_t iteration, Index epoch, Index minibatches) {
  return drawn_order(seed, fmt::format("order {}/{}", iteration, epoch), minibatches);
}

std::vector<std::vector<Index>> first_fit(const std::vector<Index>& lengths, Index window) {
  std::vector<std::vector<Index>> windows;
  std::vector<Index> used;
  for (Index i = 0; i < Index(lengths.size()); ++i) {
    const Index length = lengths[std::size_t(i)];
    ensure(length <= window, "{} tokens do not fit a window of {}", length, window);
    const auto first = std::find_if(used.begin(), used.end(), [&](Index tokens) { return tokens + length <= window; });
    const auto w = std::size_t(first - used.begin());
    if (first == used.end()) used.push_back(0), windows.emplace_back();
    used[w] += length;
    windows[w].push_back(i);
  }
  return windows;
}

}  // namespace gyr
