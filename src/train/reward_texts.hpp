// SPDX-License-Identifier: BSD-3-Clause
// Texts of a reward model that has another tokenizer than the policy, or a template (rl.rewards.NAME.template). Prompt and answer are
// decoded with the policy's tokenizer, formatted by the template or the model's chat template, and encoded with the model's tokenizer.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/conversation.hpp"
#include "src/policy/rewards/reward.hpp"

namespace gyr {

class RewardTexts {
 public:
  // nullopt: the model of this rule reads the token ids of the policy. Exit::config if it can read neither these nor texts, Exit::data or
  // Exit::missing for a tokenizer or template that cannot be read.
  static std::optional<RewardTexts> of(const RunConfig&, const RewardConfig&);

  // Token ids that the model reads. `answer`: with prompt_text, without special tokens, and with text. The end token follows an answer that
  // the policy ended, unless the text of a format string ends with a special token. A chat template writes its own end.
  // Exit::data if the template cannot format the conversation, or if the tokenizer has no token for it.
  std::vector<std::int32_t> tokens(const Answer& answer) const;

 private:
  RewardTexts(const RewardConfig& rule, Tokenizer tokenizer, Chat chat) : rule_(rule), tokenizer_(std::move(tokenizer)), format_{std::move(chat)} {}
  Json line_of(const Answer&) const;
  std::vector<Utterance> utterances_of(const Answer&) const;

  RewardConfig rule_;
  Tokenizer tokenizer_;
  ConversationFormat format_;
};

}  // namespace gyr
