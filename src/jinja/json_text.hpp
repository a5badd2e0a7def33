// SPDX-License-Identifier: BSD-3-Clause
// The filter tojson: JSON text as Python's json.dumps writes it.
#pragma once

#include <optional>

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

struct JsonStyle {
  bool ascii = false;                           // true: characters outside of ASCII become \u escapes
  std::optional<std::string> indent = {};       // text per level; empty: everything is on one line
  std::string item_end = ", ", key_end = ": ";  // separators
  bool sort_keys = false;
};

// Problem for values that JSON does not have.
Text json_text(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace gyr::jinja
