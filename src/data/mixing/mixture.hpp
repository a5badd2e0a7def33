// SPDX-License-Identifier: BSD-3-Clause
// Mixture of corpora whose proportions change during a run. The samples of a run are divided into phases. A phase begins
// with a stage, or where a corpus has provided its limit of samples (epoch cap). Within a phase, the corpora that have
// weight and samples left form a Blend of their own. Each corpus provides its samples in its own order throughout:
//   sample i of phase p = (d, n_d(p) + k),  (d, k) = Blend_p(i - first_p)
// n_d(p): samples of corpus d in all earlier phases; first_p: first sample of the phase. Adjacent stages with the same
// normalised weights are one phase, so that a stage that repeats the weights changes no sample.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/data/mixing/blend.hpp"

namespace gyr {

struct MixtureStage {
  std::int64_t first = 0;       // its first sample
  std::vector<double> weights;  // of each corpus, with any sum; 0: the stage does not read the corpus
};

// Change of what the samples of a run come from.
struct MixtureChange {
  std::int64_t sample = 0;                // first sample after the change
  std::vector<std::int64_t> left = {};    // corpora that have provided their limit before this sample
  std::vector<double> shares = {};        // of each corpus from here on, with sum 1; empty: no corpus is left
  std::optional<std::size_t> stage = {};  // stage that begins here, counted from 0
};

class Mixture {
 public:
  static constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max();

  // `stages`: in rising order of `first`, which is 0 for the first. `limits`: number of samples that each corpus provides
  // at most; empty: no limits. Exit::config unless each stage has one finite weight >= 0 for each corpus, not all 0.
  explicit Mixture(std::vector<MixtureStage> stages, std::vector<std::int64_t> limits = {});

  // Corpus of sample i >= 0 and its number there. Thread-safe. Exit::config for i >= size.
  Blend::Pick at(std::int64_t i) const;
  // Samples of each corpus among samples 0 to i - 1, or to the last one.
  std::vector<std::int64_t> taken_before(std::int64_t i) const;
  // Number of samples, if it is below `most`; otherwise `most`. It ends where a stage has no corpus left to read.
  std::int64_t size_up_to(std::int64_t most) const;
  // Changes at the samples [first, last), in order.
  std::vector<MixtureChange> changes(std::int64_t first, std::int64_t last) const;

  const std::vector<MixtureStage>& stages() const { return stages_; }
  bool is_limited() const;  // true if a corpus has a limit
  std::size_t corpora() const { return stages_.front().weights.size(); }

 private:
  struct Phase {
    std::int64_t first;
    std::size_t stage;                  // stage that it begins in
    std::vector<std::int64_t> corpora;  // that it reads
    std::vector<std::int64_t> before;   // samples of each corpus before the phase
    std::unique_ptr<Blend> blend;       // null: the phase reads one corpus

    std::vector<std::int64_t> taken_before(std::int64_t i) const;
  };
  const Phase* phase_of(std::int64_t i) const;  // null: sample i does not exist
  void extend(std::int64_t i) const;
  bool reaches_limit(const Phase&, std::int64_t i) const;
  void begin_phase(std::int64_t first, std::size_t stage, std::vector<std::int64_t> before) const;
  std::size_t next_stage(std::size_t stage) const;
  std::vector<double> shares_of(const Phase&) const;

  std::vector<MixtureStage> stages_;
  std::vector<std::vector<double>> normalised_;  // weights of each stage
  std::vector<std::int64_t> limits_;             // endless: no limit
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<const Phase>> phases_;
  mutable std::int64_t known_ = 0;      // samples whose phase is known
  mutable std::int64_t end_ = endless;  // number of samples, once it is known
};

}  // namespace gyr
