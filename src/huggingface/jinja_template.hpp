// SPDX-License-Identifier: BSD-3-Clause
// Converts Jinja chat templates in which every turn has the same form into format strings of ChatTemplate. White space
// is handled as in transformers (trim_blocks, lstrip_blocks).
#pragma once

#include <string>

#include "src/huggingface/companions.hpp"

namespace gyr {

// Returns the format string of a turn. Supported is one loop `for message in messages` that writes text, special tokens
// by name, message['role'] and then message['content']. Branches on message['role'] == '...' are supported if all write
// the same form. A block `if add_generation_prompt` may follow the loop and start an assistant turn in the same form.
// The idiom that sets an undefined add_generation_prompt may precede it. Throws Exit::data naming file, position and
// construct of anything else.
std::string format_of(const JinjaTemplate&);

}  // namespace gyr
