// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/sourced_text.hpp"

#include "src/data/json_line.hpp"

namespace gyr {

SourcedText read_sourced(std::string_view line, const std::string& source_key, const std::string& text_key) {
  using namespace json_line;
  try {
    const json row = parse_object(line);
    const auto text = [&](const std::string& key) {
      const std::string& text = string_of(row, key);
      if (text.find_first_not_of(" \t\n\v\f\r") == text.npos) refuse("has an empty text under '{}'", key);
      return text;
    };
    return {text(source_key), text(text_key), {}};
  } catch (const Problem& problem) {
    return {{}, {}, problem.what};
  }
}

}  // namespace gyr
