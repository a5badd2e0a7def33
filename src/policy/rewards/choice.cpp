// SPDX-License-Identifier: BSD-3-Clause
// Reward `choice`: 1 if the last of `options` in the answer equals the field, else 0, also if there is none. Of options
// that end at the same place, the longest counts. With `whole_words`, an option that continues a word, or that a word
// continues, does not count.
#include <algorithm>

#include "src/policy/rewards/field.hpp"
#include "src/policy/rewards/rules.hpp"
#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

bool in_word(char32_t c) { return c == '_' || !(is_white_space(c) || is_punctuation(c)); }

// True if the text between `begin` and `end` neither continues a word nor is continued.
bool is_whole(const std::string& text, std::size_t begin, std::size_t end) {
  const bool continues = begin > 0 && in_word(character_before(text, begin).point) && in_word(character_at(text, begin).point);
  const bool continued = end < text.size() && in_word(character_at(text, end).point) && in_word(character_before(text, end).point);
  return !continues && !continued;
}

class ChoiceReward : public AnswerRule {
 public:
  explicit ChoiceReward(const RewardConfig& c) : AnswerRule(c) {
    require(std::count(c.options.begin(), c.options.end(), "") == 0, Exit::config, "{} has an empty option; leave it out",
            key_of_reward(c, "options"));
  }

 private:
  std::optional<double> value(const Answer& a) const override {
    const std::string right = field_text(a, config_);
    if (std::find(config_.options.begin(), config_.options.end(), right) == config_.options.end())
      refuse_field(a, config_, "one of " + key_of_reward(config_, "options"));
    return last_option(lossy_utf8(a.text)) == right ? 1 : 0;
  }

  // Empty if there is none.
  std::string last_option(const std::string& text) const {
    std::string last;
    std::size_t last_end = 0;
    for (const std::string& option : config_.options)
      if (const auto end = last_end_of(option, text); end > last_end || (end == last_end && option.size() > last.size() && end > 0))
        last = option, last_end = end;
    return last;
  }

  // End of the last place of the option in the text; 0 if there is none.
  std::size_t last_end_of(const std::string& option, const std::string& text) const {
    for (auto at = text.rfind(option); at != text.npos; at = at > 0 ? text.rfind(option, at - 1) : text.npos)
      if (!config_.whole_words || is_whole(text, at, at + option.size())) return at + option.size();
    return 0;
  }
};

}  // namespace

std::unique_ptr<Reward> choice_reward(const RewardConfig& c) { return std::make_unique<ChoiceReward>(c); }

}  // namespace gyr
