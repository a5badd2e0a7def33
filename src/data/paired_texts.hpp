// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as two answers of which one is preferred: {"prompt": "...", "chosen": "...", "rejected": "..."}. Each becomes a text of the
// prompt, which is only read, and the answer, which is learned; without a prompt all of a text is learned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/chat_template.hpp"

namespace gyr {

struct PairedResponses {
  std::vector<Utterance> chosen, rejected;
  std::string problem;  // what is wrong with the line, as in "the line ..."; empty when nothing is
};

// Other keys are passed over. A problem: no valid JSON object, a key that is missing or no string, an empty answer.
PairedResponses read_pair(std::string_view line);

}  // namespace gyr
