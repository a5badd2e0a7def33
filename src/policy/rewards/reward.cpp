// SPDX-License-Identifier: BSD-3-Clause
// Makes a reward from its settings, and limits and checks its values.
#include "src/policy/rewards/reward.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class LimitedReward : public Reward {
 public:
  LimitedReward(const RewardConfig& config, std::unique_ptr<Reward> rule) : config_(config), rule_(std::move(rule)) {}

  std::vector<std::optional<double>> of(const std::vector<Answer>& answers) override {
    auto values = rule_->of(answers);
    ensure(values.size() == answers.size(), "reward {} gives {} values for {} answers", config_.name, values.size(), answers.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i]) continue;
      require(std::isfinite(*values[i]), Exit::numeric, "reward `{}`: the value of rollout {} is {}; correct the rule, so that its values are finite",
              config_.name, id_of(answers[i]), *values[i]);
      if (!config_.clip.empty()) values[i] = std::clamp(*values[i], config_.clip[0], config_.clip[1]);
    }
    return values;
  }

 private:
  const RewardConfig config_;
  const std::unique_ptr<Reward> rule_;
};

std::unique_ptr<Reward> rule_of(const RewardConfig& c, const std::filesystem::path& output) {
  switch (c.type) {
    case RewardType::exact: return exact_reward(c);
    case RewardType::regex: return regex_reward(c);
    case RewardType::choice: return choice_reward(c);
    case RewardType::number: return number_reward(c);
    case RewardType::format: return format_reward(c);
    case RewardType::length: return length_reward(c);
    case RewardType::repetition: return repetition_reward(c);
    case RewardType::tokens: return tokens_reward(c);
    case RewardType::process: return process_reward(c, output);
    case RewardType::model: return model_reward(c);
  }
  fail(Exit::internal, "reward {} has no type", c.name);
}

}  // namespace

std::unique_ptr<Reward> make_reward(const RewardConfig& config, const std::filesystem::path& output) {
  return std::make_unique<LimitedReward>(config, rule_of(config, output));
}

std::string id_of(const Answer& a) { return fmt::format("{}/{}", a.prompt, a.sample); }

}  // namespace gyr
