// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as an example to learn answers from: {"prompt": ..., "response": ...} for a template of this pair,
// {"messages": [{"role": ..., "content": ...}, ...]} for a template of turns. Keys have the names the user gives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/chat_template.hpp"

namespace gyr {

struct ConversationFormat {
  ChatTemplate text;  // how an example is written down
  std::string prompt = "prompt", response = "response";
  std::string messages = "messages", role = "role", content = "content";
  std::string assistant = "assistant";  // the role whose turns are learned
};

struct Conversation {
  std::vector<Utterance> utterances;
  std::string problem;  // what is wrong with the line, as in "the line ..."; empty when nothing is
};

// Other keys are passed over. A problem: no valid JSON object, a key that is missing, twice there or no string, no turn
// of the assistant, nesting deeper than json_line::max_depth.
Conversation read_conversation(std::string_view line, const ConversationFormat& format);

}  // namespace gyr
