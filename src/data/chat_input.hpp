// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as the input of a chat template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/interpreter.hpp"
#include "src/jinja/value.hpp"

namespace gyr {

// Messages of a conversation, and further variables of the template.
struct ChatInput {
  std::vector<jinja::Value> messages;
  jinja::Variables variables = {};
  std::size_t bytes = 0;  // size of the input, which raises the limits on the work of a rendering
};

// Origins of text: 0 is the template, i + 1 is message i, and all other data have the largest number.
inline constexpr std::uint32_t other_data = 0xffffffff;
inline jinja::Origin origin_of(std::size_t message) { return {std::uint32_t(message + 1)}; }

// A message as the template receives it. A role of ASCII letters, digits, - and _ counts as written by the template,
// because templates build special tokens from it ('<|' + message.role + '|>').
jinja::Value message_of(std::string_view role, std::string_view content, std::size_t message);

// The messages under `messages` of the JSON object `line`, whose role and text are under the other keys, and the
// variables `tools`, `documents` and those of `chat_template_kwargs`. As in transformers 5.24, keys of null are left out,
// and a message's reasoning has the names reasoning_content and thinking. jinja::Problem as a phrase that follows "the
// line ".
ChatInput read_chat_input(std::string_view line, const std::string& messages, const std::string& role, const std::string& content);

}  // namespace gyr
