// SPDX-License-Identifier: BSD-3-Clause
// Chat templates that write every turn in one form, in Jinja as transformers reads it (blocks trimmed), as format strings of ChatTemplate.
#pragma once

#include <string>

#include "src/huggingface/companions.hpp"

namespace gyr {

// What is taken: one `for message in messages` whose body writes texts, special tokens by name, message['role'] and then
// message['content']; a conditional of add_generation_prompt behind it that begins a turn of the assistant in the same form; branches
// on message['role'] == '...' that all write it so; the idiom that sets add_generation_prompt where it is not defined.
// Exit::data naming file, place and construct of the first thing that is anything else.
std::string format_of(const JinjaTemplate&);

}  // namespace gyr
