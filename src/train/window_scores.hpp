// SPDX-License-Identifier: BSD-3-Clause
// Windows of minibatches as samples that a model scores, and the rows of their answer tokens among its scores.
#pragma once

#include "src/policy/window_samples.hpp"
#include "src/train/step_source.hpp"

namespace gyr {

// The rollouts must outlive this. Empty windows fill up the samples to a multiple of `multiple`.
class WindowScores {
 public:
  WindowScores(const Rollouts& rollouts, const std::vector<PackedMinibatch>& minibatches, Index multiple)
      : rollouts_(rollouts), minibatches_(minibatches) {
    for (std::size_t m = 0; m < minibatches.size(); ++m)
      for (Index w = 0; w < minibatches[m].size(); ++w) all_.emplace_back(m, w);
    used_ = all_.size();
    while (Index(all_.size()) % multiple != 0) all_.emplace_back(0, minibatches.front().size());
  }
  StepSamples samples() const {
    return {[this](Index number) {
              const auto& [m, window] = all_[std::size_t(number)];
              return scoring_sample(rollouts_, minibatches_[m], window);
            },
            {0, Index(all_.size())}};
  }
  // Calls visit(rollout, t, row) for every answer token t, with the index of the row that predicts it among all rows of all samples.
  template <class F>
  void visit(const F& visit) const {
    for (std::size_t s = 0; s < used_; ++s) {
      const PackedMinibatch& minibatch = minibatches_[all_[s].first];
      visit_answer_rows(rollouts_, minibatch.windows[std::size_t(all_[s].second)],
                        [&](Index i, Index t, Index row) { visit(i, t, s * std::size_t(minibatch.length) + std::size_t(row)); });
    }
  }

 private:
  const Rollouts& rollouts_;
  const std::vector<PackedMinibatch> minibatches_;
  std::vector<std::pair<std::size_t, Index>> all_ = {};
  std::size_t used_ = 0;
};

}  // namespace gyr
