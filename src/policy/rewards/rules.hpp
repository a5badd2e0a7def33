// SPDX-License-Identifier: BSD-3-Clause
// One function per type of reward. Each file explains its rule.
#pragma once

#include "src/policy/rewards/reward.hpp"

namespace gyr {

// A rule that values each answer by itself.
class AnswerRule : public Reward {
 public:
  explicit AnswerRule(const RewardConfig& config) : config_(config) {}
  std::vector<std::optional<double>> of(const std::vector<Answer>& answers) final {
    std::vector<std::optional<double>> values;
    for (const Answer& answer : answers) values.push_back(value(answer));
    return values;
  }

 protected:
  virtual std::optional<double> value(const Answer&) const = 0;
  const RewardConfig config_;
};

std::unique_ptr<Reward> exact_reward(const RewardConfig&);
std::unique_ptr<Reward> regex_reward(const RewardConfig&);
std::unique_ptr<Reward> choice_reward(const RewardConfig&);
std::unique_ptr<Reward> number_reward(const RewardConfig&);
std::unique_ptr<Reward> format_reward(const RewardConfig&);
std::unique_ptr<Reward> length_reward(const RewardConfig&);
std::unique_ptr<Reward> repetition_reward(const RewardConfig&);
std::unique_ptr<Reward> tokens_reward(const RewardConfig&);
std::unique_ptr<Reward> model_reward(const RewardConfig&);
std::unique_ptr<Reward> process_reward(const RewardConfig&, const std::filesystem::path& output);

}  // namespace gyr
