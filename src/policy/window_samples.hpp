// SPDX-License-Identifier: BSD-3-Clause
// Training samples of policy training: windows of separate documents, each a prompt with its answer, and the values per row that the
// loss reads (policy_field). Only answer tokens have labels.
#pragma once

#include <map>

#include "src/data/dataset.hpp"
#include "src/policy/policy_config.hpp"

namespace gyr {

// Rollouts of a minibatch, packed into windows of `length` tokens.
struct PackedMinibatch {
  Index length = 0;
  std::vector<std::vector<Index>> windows = {};  // rollouts of each window, in order

  Index size() const { return Index(windows.size()); }
};
PackedMinibatch packed(const Rollouts&, const std::vector<Index>& members, Index length);

// Calls visit(rollout, t, row) for every answer token t of a window and the row that predicts it.
template <class F>
void visit_answer_rows(const Rollouts& rollouts, const std::vector<Index>& window, const F& visit) {
  Index first = 0;
  for (const Index i : window) {
    const Rollout& r = rollouts.all[std::size_t(i)];
    for (Index t = 0; t < r.length(); ++t) visit(i, t, first + r.begin + t - 1);
    first += Index(r.tokens.size());
  }
}

// Samples without values for the loss, for scoring. Windows after the last one are empty, without labels.
Sample scoring_sample(const Rollouts&, const PackedMinibatch&, Index window);

// Advantages of all rollouts, and with a critic the returns that it learns.
struct Targets {
  std::vector<std::vector<double>> advantages, returns = {};
};
Targets targets_of(const Rollouts&, const PolicyConfig&);

// Values of a minibatch. `targets`: of all rollouts. A masked answer, or one without a reward, counts neither in the loss nor in the
// counts that it is divided by.
class MinibatchValues {
 public:
  MinibatchValues(const Rollouts&, const Targets&, const PackedMinibatch&, const PolicyConfig&);
  // The sample of a window, with the values of its rows; for the policy, or for the critic.
  Sample sample(Index window) const;
  Sample critic_sample(Index window) const;
  Index answers() const { return answers_; }  // B, answers that count
  Index tokens() const { return tokens_; }    // N, their tokens that count

 private:
  bool counts(const Rollout& r) const { return r.reward && (r.ended() || c_.cut != CutAnswers::mask); }
  double weight(Index tokens) const;

  const Rollouts& rollouts_;
  const Targets& targets_;
  const PackedMinibatch& minibatch_;
  const PolicyConfig c_;
  std::map<Index, std::vector<double>> corrections_ = {};  // of the answers that count, by rollout
  Index answers_ = 0, tokens_ = 0, all_tokens_ = 0;        // all_tokens: with those that a correction leaves out
};

}  // namespace gyr
