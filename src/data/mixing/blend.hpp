// SPDX-License-Identifier: BSD-3-Clause
// Blends several corpora in fixed proportions. Sample i comes from the corpus with the largest w_d max(i, 1) - taken_d,
// that is, the corpus that lags most behind its weight. Ties go to the first corpus. This is Megatron-LM's rule. w_d:
// weight of corpus d, normalised to sum 1; taken_d: samples of corpus d among samples 0 to i - 1.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace gyr {

class Blend {
 public:
  // The weights may have any sum. Exit::config unless each is positive and finite.
  explicit Blend(std::vector<double> weights);

  struct Pick {
    std::int64_t corpus;
    std::int64_t number;  // sample number within the corpus: how many samples of it precede sample i
  };
  // Returns the corpus of sample i >= 0 and its number there. Counts are cached for every 1024th sample up to the
  // largest i so far; the samples after the last cached count are recomputed one by one. Thread-safe.
  Pick at(std::int64_t i) const;
  // Samples of each corpus among samples 0 to i - 1.
  std::vector<std::int64_t> taken_before(std::int64_t i) const;

  std::span<const double> weights() const { return weights_; }  // weight of each corpus, normalised to sum 1

 private:
  std::int64_t step(std::int64_t i, std::int64_t* taken) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> marks_;  // [k D + d]: samples of corpus d before sample 1024 k; D: number of corpora
};

}  // namespace gyr
