// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/paired_texts.hpp"

#include "src/data/json_line.hpp"

namespace gyr {

PairedResponses read_pair(std::string_view line) {
  using namespace json_line;
  PairedResponses pair;
  try {
    const json row = parse_object(line);
    const std::string prompt = row.contains("prompt") ? string_of(row, "prompt") : "";
    const auto text = [&](const char* key) {
      const std::string& response = string_of(row, key);
      if (response.empty()) refuse("has an empty text under '{}'", key);
      std::vector<Utterance> text;
      if (!prompt.empty()) text.push_back({prompt, {}, false});
      text.push_back({response, {}, true});
      return text;
    };
    pair.chosen = text("chosen"), pair.rejected = text("rejected");
  } catch (const Problem& problem) {
    pair = {{}, {}, problem.what};
  }
  return pair;
}

}  // namespace gyr
