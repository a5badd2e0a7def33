// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as a prompt for reinforcement learning. {"prompt": "..."} is text, {"prompt": [5, 17]} are token
// ids, and {"messages": [...]} is a conversation whose next turn is the answer. All other keys are fields that rewards
// may read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/conversation.hpp"

namespace gyr {

struct PromptFormat {
  const Tokenizer* tokenizer = nullptr;            // must outlive the format; null: all prompts are token ids
  std::shared_ptr<const ConversationFormat> chat;  // template of the prompts; null: text is encoded as `generate` encodes a prompt
  std::string key = "prompt";                      // JSON key of a prompt without a template
};

struct PromptLine {
  std::vector<std::int32_t> tokens;  // up to the begin of the answer, with the generation prompt of the template; never empty
  std::string fields;                // the other keys as a JSON object on one line, sorted by name
  std::string problem;               // why the line is invalid, to be put after "the line "; empty if it is valid
};

// A list of messages may also be under the key of the prompt. A line is invalid if it is no JSON object, if a key is
// repeated, if it has no prompt or two, if the last message is the assistant's, if a token id is not in the vocabulary,
// if the prompt has no token, or if an integer has more than 64 bits.
PromptLine read_prompt(std::string_view line, const PromptFormat& format);

}  // namespace gyr
