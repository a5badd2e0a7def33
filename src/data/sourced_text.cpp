// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/sourced_text.hpp"

#include "src/data/json_line.hpp"

namespace gyr {

using namespace json_line;

namespace {

// The string under `key`. If `key` is a path such as a.b and not itself a key, the string under b in the object under
// a.
const std::string& text_at(const json& object, const std::string& key, const std::string& where = "") {
  const auto dot = key.find('.');
  if (dot == key.npos || object.contains(key)) return string_of(object, key, where);
  const std::string outer = key.substr(0, dot);
  const json& inner = value_of(object, outer, where);
  if (!inner.is_object()) refuse("has {} under '{}'{}, not an object", kind_of(inner), outer, where);
  return text_at(inner, key.substr(dot + 1), fmt::format(" in '{}'{}", outer, where));
}

}  // namespace

SourcedText read_sourced(std::string_view line, const std::string& source_key, const std::string& text_key) {
  try {
    const json row = parse_object(line);
    const auto text = [&](const std::string& key) {
      const std::string& text = text_at(row, key);
      if (text.find_first_not_of(" \t\n\v\f\r") == text.npos) refuse("has an empty text under '{}'", key);
      return text;
    };
    return {text(source_key), text(text_key), {}};
  } catch (const Problem& problem) {
    return {{}, {}, problem.what};
  }
}

}  // namespace gyr
