// SPDX-License-Identifier: BSD-3-Clause
// Blend of several corpora in fixed proportions. This file is compiled without fused multiply-add, because it would
// break ties differently.
#include "src/data/mixing/blend.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

constexpr std::int64_t interval = 1024;

}  // namespace

Blend::Blend(std::vector<double> weights) : weights_(std::move(weights)), marks_(weights_.size(), 0) {
  require(!weights_.empty(), Exit::config, "no corpus is given to draw samples from");
  for (const double w : weights_) require(std::isfinite(w) && w > 0, Exit::config, "a corpus has weight {}; weights are positive numbers", w);
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& w : weights_) w /= sum;
}

// Chooses the corpus of sample i and increments its count. taken[d]: samples of corpus d before sample i.
std::int64_t Blend::step(std::int64_t i, std::int64_t* taken) const {
  const double scale = std::max(double(i), 1.0);
  std::size_t best = 0;
  double largest = weights_[0] * scale - double(taken[0]);
  for (std::size_t d = 1; d < weights_.size(); ++d) {
    const double lag = weights_[d] * scale - double(taken[d]);
    if (lag > largest) {
      largest = lag;
      best = d;
    }
  }
  ++taken[best];
  return std::int64_t(best);
}

std::vector<std::int64_t> Blend::taken_before(std::int64_t i) const {
  ensure(i >= 0, "sample number {} is out of range; it is 0 or larger", i);
  const std::size_t D = weights_.size();
  const auto mark = std::size_t(i / interval);
  std::vector<std::int64_t> taken(D);
  {
    const std::lock_guard lock(mutex_);
    while (marks_.size() / D <= mark) {
      const auto known = std::int64_t(marks_.size() / D);
      std::copy(marks_.end() - std::ptrdiff_t(D), marks_.end(), taken.begin());
      for (std::int64_t k = (known - 1) * interval; k < known * interval; ++k) step(k, taken.data());
      marks_.insert(marks_.end(), taken.begin(), taken.end());
    }
    std::copy_n(marks_.begin() + std::ptrdiff_t(mark * D), D, taken.begin());
  }
  for (std::int64_t k = std::int64_t(mark) * interval; k < i; ++k) step(k, taken.data());
  return taken;
}

Blend::Pick Blend::at(std::int64_t i) const {
  std::vector<std::int64_t> taken = taken_before(i);
  const std::int64_t corpus = step(i, taken.data());
  return {corpus, taken[std::size_t(corpus)] - 1};
}

}  // namespace gyr
