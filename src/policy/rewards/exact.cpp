// SPDX-License-Identifier: BSD-3-Clause
// Reward `exact`: 1 if the answer and the field are equal after `normalize`, else 0.
#include "src/policy/rewards/field.hpp"
#include "src/policy/rewards/normalize.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class ExactReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::optional<double> value(const Answer& a) const override {
    return normalized(a.text, config_.normalize) == normalized(field_text(a, config_), config_.normalize) ? 1 : 0;
  }
};

}  // namespace

std::unique_ptr<Reward> exact_reward(const RewardConfig& c) { return std::make_unique<ExactReward>(c); }

}  // namespace gyr
