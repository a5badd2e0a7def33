// SPDX-License-Identifier: BSD-3-Clause
// Reward of type model: (value - shift) * scale, with the value of prompt and answer by a reward model at the last token of the answer. The run
// computes these values before it asks its rules.
#include "kernels/base/error.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class ModelReward final : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 protected:
  std::optional<double> value(const Answer& answer) const override {
    const auto found = answer.values_of_models.find(config_.name);
    ensure(found != answer.values_of_models.end(), "reward {}: no value of models.{}", config_.name, config_.model);
    return (found->second - config_.shift) * config_.scale;
  }
};

}  // namespace

std::unique_ptr<Reward> model_reward(const RewardConfig& config) { return std::make_unique<ModelReward>(config); }

}  // namespace gyr
