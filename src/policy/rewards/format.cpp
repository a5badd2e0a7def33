// SPDX-License-Identifier: BSD-3-Clause
// Reward `format`: 1 if each of `tags` opens once, as <tag>, and then closes once, as </tag>, with text between that is
// not only white space; if the tags follow each other in their order without overlap; and if only white space follows
// the last. Otherwise 0.
#include <string_view>

#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

bool blank(std::string_view text) { return text.find_first_not_of(" \t\n\v\f\r") == text.npos; }

// Place of the only occurrence; npos if there is none, or more than one.
std::size_t only_place(std::string_view text, const std::string& mark) {
  const auto at = text.find(mark);
  return at == text.npos || text.find(mark, at + 1) != text.npos ? text.npos : at;
}

class FormatReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::optional<double> value(const Answer& a) const override {
    const std::string_view text = a.text;
    std::size_t done = 0;  // end of the previous tag
    for (const std::string& tag : config_.tags) {
      const std::string opening = "<" + tag + ">", closing = "</" + tag + ">";
      const auto open = only_place(text, opening), close = only_place(text, closing);
      if (open == text.npos || close == text.npos || open < done || close < open + opening.size()) return 0;
      if (blank(text.substr(open + opening.size(), close - open - opening.size()))) return 0;
      done = close + closing.size();
    }
    return blank(text.substr(done)) ? 1 : 0;
  }
};

}  // namespace

std::unique_ptr<Reward> format_reward(const RewardConfig& c) { return std::make_unique<FormatReward>(c); }

}  // namespace gyr
