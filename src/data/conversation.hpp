// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as a fine-tuning example: {"prompt": ..., "response": ...} for a template with these
// placeholders, {"messages": [{"role": ..., "content": ...}, ...]} for a template of turns or a model's chat template. The
// user can choose other key names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/chat.hpp"

namespace gyr {

struct ConversationFormat {
  Chat text;  // format that is filled with the example
  std::string prompt = "prompt", response = "response";
  std::string messages = "messages", role = "role", content = "content";
  std::string assistant = "assistant";  // role whose turns are target tokens; all other turns are masked from the loss
};

struct Conversation {
  std::vector<Utterance> utterances;
  std::string problem;  // why the line is invalid, to be put after "the line "; empty if it is valid
};

// Ignores other keys; a model's chat template may read them (chat_input.hpp). A line is invalid if it is no JSON object,
// if a key is missing, repeated or not a string, if no turn is the assistant's, if it is nested deeper than
// json_line::max_depth, or if the chat template refuses it.
Conversation read_conversation(std::string_view line, const ConversationFormat& format);

}  // namespace gyr
