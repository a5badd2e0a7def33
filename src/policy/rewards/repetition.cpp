// SPDX-License-Identifier: BSD-3-Clause
// Reward `repetition`: -r / (T - n + 1), with T tokens of the answer, n tokens of an n-gram, and r the number of n-grams
// that occurred before in the answer; 0 if T < n.
#include <algorithm>
#include <numeric>

#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

class RepetitionReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::optional<double> value(const Answer& a) const override {
    const auto n = std::size_t(config_.ngram);
    if (a.tokens.size() < n) return 0;
    std::vector<std::size_t> begins(a.tokens.size() - n + 1);
    std::iota(begins.begin(), begins.end(), std::size_t(0));
    const auto gram = [&](std::size_t begin) { return a.tokens.subspan(begin, n); };
    std::sort(begins.begin(), begins.end(), [&](std::size_t i, std::size_t j) {
      return std::lexicographical_compare(gram(i).begin(), gram(i).end(), gram(j).begin(), gram(j).end());
    });
    std::size_t repeated = 0;  // equal n-grams are adjacent, and all of them but one occurred before
    for (std::size_t i = 1; i < begins.size(); ++i) repeated += std::ranges::equal(gram(begins[i - 1]), gram(begins[i]));
    return 0 - double(repeated) / double(begins.size());
  }
};

}  // namespace

std::unique_ptr<Reward> repetition_reward(const RewardConfig& c) { return std::make_unique<RepetitionReward>(c); }

}  // namespace gyr
