// SPDX-License-Identifier: BSD-3-Clause
// Settings of the loss of policy training (policy_loss.hpp), and the values per row that it reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops/policy/policy_loss.hpp"
#include "modules/pass/named_values.hpp"

namespace gyr {

class Objective;

enum class PolicyRatio { token, sequence };

struct PolicySettings {
  PolicyRatio ratio = PolicyRatio::token;
  PolicyClip clip = {};
  KlEstimator kl = KlEstimator::none;  // estimator in the loss
  bool entropy_bonus = false;          // true: rows may have an entropy weight
  double temperature = 1;
  // true: the old log-probabilities are those of the step itself, so that all ratios are 1; the field `old` has those of generation
  bool old_of_step = false;
  bool reads_reference = false;                 // true: the run has a reference model
  bool has_critic = false;                      // true: a critic is trained beside the policy
  double value_clip = 0;                        // clip width of the critic's loss; 0: no clip
  std::vector<std::string> reward_models = {};  // names of the models that score answers
};

// Fields of a row. Rows outside of answers have the padding, 0.
namespace policy_field {
inline const ValueName<Token> answer{"answer index of rows"};             // -1: not in an answer
inline const ValueName<double> inverse_length{"inverse answer lengths"};  // (answers) 1 / T
inline const ValueName<double> old{"old log-probabilities"}, reference{"reference log-probabilities"}, advantage{"advantages"},
    correction{"corrections for the drawing policy"}, weight_in_loss{"weights in the policy loss"}, kl{"weights of the KL divergence"},
    entropy{"weights of the entropy"}, share{"shares of the answer tokens"};
}  // namespace policy_field

// The same of the critic's loss (value_loss.hpp).
namespace value_field {
inline const ValueName<double> value{"values before the update"}, returns{"returns"}, weight{"weights in the value loss"};
}  // namespace value_field

std::shared_ptr<const Objective> policy(const PolicySettings&);  // creates the objective
// Maximum number of answers in a sequence: a row without a label separates them.
Index most_answers(Index seq_length);

}  // namespace gyr
