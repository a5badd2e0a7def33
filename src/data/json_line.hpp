// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as a strict reader takes it: what is wrong with it is told in words, as in "the line ...".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/base/error.hpp"

namespace gyr::json_line {

using json = nlohmann::json;

inline constexpr std::size_t max_depth = 64;

// What is wrong with a line.
struct Problem {
  std::string what;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Problem{fmt::format(text, std::forward<Args>(args)...)};
}

// The object that the line is, as a tree, without a key that is there twice and nested no deeper than max_depth.
json parse_object(std::string_view line);
std::string kind_of(const json& value);  // "a string", "an object"
// `where` is "" or names a part of the line, as in " in message 3".
const json& value_of(const json& object, const std::string& key, const std::string& where = "");
const std::string& string_of(const json& object, const std::string& key, const std::string& where = "");

}  // namespace gyr::json_line
