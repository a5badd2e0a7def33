// SPDX-License-Identifier: BSD-3-Clause
// Reward `tokens`: fraction of the answer's tokens that are the field's, a token id or a list of them; 0 for an answer
// without tokens. It needs no tokenizer, and serves demonstrations and tests.
#include <algorithm>

#include "src/policy/rewards/field.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class TokensReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::vector<std::int64_t> right_tokens(const Answer& a) const {
    const Json& field = field_of(a, config_);
    std::vector<std::int64_t> tokens;
    const auto add = [&](const Json& id) {
      if (!id.is_number_integer()) refuse_field(a, config_, "a token id or a list of token ids");
      tokens.push_back(id.get<std::int64_t>());
    };
    if (!field.is_array()) add(field);
    else
      for (const Json& id : field) add(id);
    return tokens;
  }
  std::optional<double> value(const Answer& a) const override {
    const std::vector<std::int64_t> right = right_tokens(a);
    const auto is_right = [&](std::int32_t token) { return std::find(right.begin(), right.end(), token) != right.end(); };
    if (a.tokens.empty()) return 0;
    return double(std::count_if(a.tokens.begin(), a.tokens.end(), is_right)) / double(a.tokens.size());
  }
};

}  // namespace

std::unique_ptr<Reward> tokens_reward(const RewardConfig& c) { return std::make_unique<TokensReward>(c); }

}  // namespace gyr
