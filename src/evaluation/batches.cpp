// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/batches.hpp"

#include <algorithm>
#include <numeric>

namespace gyr {

std::vector<Batch> plan_batches(std::span<const Index> lengths, const BatchLimits& limits) {
  std::vector<Index> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return lengths[a] > lengths[b]; });
  std::vector<Batch> batches;
  for (const Index i : order) {
    const Index members = batches.empty() ? limits.passages : Index(batches.back().members.size());
    if (members >= limits.passages || (members + 1) * batches.back().seq_length > limits.tokens) batches.push_back({{}, lengths[i]});
    batches.back().members.push_back(i);
  }
  return batches;
}

}  // namespace gyr
