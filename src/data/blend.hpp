// SPDX-License-Identifier: BSD-3-Clause
// Several corpora in fixed proportions: sample i comes from the corpus that lags most behind its share, the one with
// the largest w_d max(i, 1) - taken_d, the first of equals. This is Megatron-LM's rule.   w_d weight of corpus d, sum 1
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace gyr {

class Blend {
 public:
  // Weights of any sum. Exit::config unless each is positive and finite.
  explicit Blend(std::vector<double> weights);

  struct Pick {
    std::int64_t corpus;
    std::int64_t number;  // how many samples it gave before: its own sample number
  };
  // Sample i >= 0. Counts are kept for every 1024th sample up to the furthest asked for; from there it is a walk.
  // Several threads may ask.
  Pick at(std::int64_t i) const;

  std::span<const double> weights() const { return weights_; }  // normalised

 private:
  std::int64_t step(std::int64_t i, std::int64_t* taken) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> marks_;  // [k D + d]: samples corpus d gave before sample 1024 k
};

}  // namespace gyr
