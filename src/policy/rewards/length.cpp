// SPDX-License-Identifier: BSD-3-Clause
// Reward `length`: -|T - target| / scale with `target`, or 1 if T <= most, else 0, with `most`.   T tokens of the answer
#include <cmath>

#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class LengthReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::optional<double> value(const Answer& a) const override {
    const auto T = Index(a.tokens.size());
    if (config_.most) return T <= *config_.most ? 1 : 0;
    return 0 - std::abs(double(T) - double(*config_.target)) / config_.scale;
  }
};

}  // namespace

std::unique_ptr<Reward> length_reward(const RewardConfig& c) { return std::make_unique<LengthReward>(c); }

}  // namespace gyr
