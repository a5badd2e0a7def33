// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as an encoder input and its target text: {"source": "...", "target": "..."}. The user names the
// keys. They may be paths into nested objects: translation.en and translation.de for {"translation": {"en": "...",
// "de": "..."}}.
#pragma once

#include <string>
#include <string_view>

namespace gyr {

struct SourcedText {
  std::string source, text;
  std::string problem;  // why the line is invalid, to be put after "the line "; empty if it is valid
};

// Ignores other keys. A line is invalid if it is no JSON object, if a key is missing or not a string, or if a text is
// only white space.
SourcedText read_sourced(std::string_view line, const std::string& source_key, const std::string& text_key);

}  // namespace gyr
