// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as a preference pair: {"prompt": "...", "chosen": "...", "rejected": "..."}. Each of the two
// texts is the prompt, masked from the loss, then the response, whose tokens are targets. Without a prompt all tokens
// are targets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/chat_template.hpp"

namespace gyr {

struct PairedResponses {
  std::vector<Utterance> chosen, rejected;
  std::string problem;  // why the line is invalid, to be put after "the line "; empty if it is valid
};

// Ignores other keys. A line is invalid if it is no JSON object, if a key is missing or not a string, or if a response
// is empty.
PairedResponses read_pair(std::string_view line);

}  // namespace gyr
