// SPDX-License-Identifier: BSD-3-Clause
// Reward `number`: 1 if the last number in the answer equals the field's, else 0. If the answer has \boxed{...} or ####,
// only the text in the last of them counts: up to the matching brace, or the rest of the line. With a tolerance t, the
// numbers a (answer) and f (field) are equal if |a - f| <= t |f|; without, as rationals.
#include <cmath>

#include "src/policy/rewards/field.hpp"
#include "src/policy/rewards/rational.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

// End of the text in braces that begins at `begin`, after the opening brace; npos if it is not closed.
std::size_t closing_brace(std::string_view text, std::size_t begin) {
  int open = 1;
  for (std::size_t at = begin; at < text.size(); ++at) {
    open += (text[at] == '{') - (text[at] == '}');
    if (open == 0) return at;
  }
  return text.npos;
}

// The last text in \boxed{...} or after ####; the complete text if there is none. A box that is not closed, because the
// answer was cut, does not count.
std::string_view marked_part(std::string_view text) {
  constexpr std::string_view box = "\\boxed{", hashes = "####";
  std::string_view part = text;
  std::size_t begin = 0;
  if (const auto at = text.rfind(hashes); at != text.npos) {
    begin = at;
    part = text.substr(at + hashes.size());
    part = part.substr(0, part.find('\n'));
  }
  for (auto at = text.rfind(box); at != text.npos && at >= begin; at = at > 0 ? text.rfind(box, at - 1) : text.npos) {
    const auto end = closing_brace(text, at + box.size());
    if (end != text.npos) return text.substr(at + box.size(), end - at - box.size());
  }
  return part;
}

class NumberReward : public AnswerRule {
 public:
  using AnswerRule::AnswerRule;

 private:
  std::optional<double> value(const Answer& a) const override {
    const auto right = last_number(marked_part(field_text(a, config_)));
    if (!right) refuse_field(a, config_, "a number, or a string that has one");
    const auto found = last_number(marked_part(a.text));
    if (!found) return 0;
    if (equal(*found, *right)) return 1;
    const double x = to_double(*found), y = to_double(*right);
    return config_.tolerance > 0 && std::isfinite(x) && std::isfinite(y) && std::abs(x - y) <= config_.tolerance * std::abs(y) ? 1 : 0;
  }
};

}  // namespace

std::unique_ptr<Reward> number_reward(const RewardConfig& c) { return std::make_unique<NumberReward>(c); }

}  // namespace gyr
