// SPDX-License-Identifier: BSD-3-Clause
// Strict parser for one JSON line. Errors are phrases to be put after "the line ", such as "is nested deeper than 64
// levels".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/base/error.hpp"

namespace gyr::json_line {

using json = nlohmann::json;

inline constexpr std::size_t max_depth = 64;

// Error of a line, thrown by refuse().
struct Problem {
  std::string what;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Problem{fmt::format(text, std::forward<Args>(args)...)};
}

// Parses the line as a JSON object. Throws Problem for repeated keys and for nesting deeper than max_depth.
json parse_object(std::string_view line);
std::string kind_of(const json& value);   // type of a value with its article: "a string", "an object"
std::string keys_of(const json& object);  // names of its keys for a message, about 100 characters at most
// Value under `key`, which must exist. `where` is "" or a place for the message, such as " in message 3".
const json& value_of(const json& object, const std::string& key, const std::string& where = "");
const std::string& string_of(const json& object, const std::string& key, const std::string& where = "");

}  // namespace gyr::json_line
