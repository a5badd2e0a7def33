// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as a source and the text to be written of it: {"source": "...", "target": "..."}, under keys that the user names, or in an object
// of its own: {"translation": {"en": "...", "de": "..."}} under translation.en and translation.de.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

struct SourcedText {
  std::string source, text;
  std::string problem;  // what is wrong with the line, as in "the line ..."; empty when nothing is
};

// Other keys are passed over. A problem: no valid JSON object, a key that is missing or no string, nothing but white space.
SourcedText read_sourced(std::string_view line, const std::string& source_key, const std::string& text_key);

}  // namespace gyr
