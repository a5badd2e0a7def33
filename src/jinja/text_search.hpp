// SPDX-License-Identifier: BSD-3-Clause
// Search in text, in linear time.
#pragma once

#include <string_view>
#include <vector>

#include "src/jinja/budget.hpp"
#include "src/jinja/text.hpp"

namespace gyr::jinja {

// Position of the first occurrence of `needle` at or after `from`; npos if there is none.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from, Budget& budget);
// Position of the last occurrence; npos if there is none.
std::size_t find_last_bytes(std::string_view text, std::string_view needle, Budget& budget);

// Replaces the first `count` occurrences of `old`; -1: all. An empty `old` occurs before each character and at the end.
Text replaced(const Text& text, std::string_view old, const Text& other, std::int64_t count, Budget& budget);

// Text without the characters of `characters` at the chosen ends; null: without white space.
Text without_ends(const Text& text, const std::string* characters, bool left, bool right, Budget& budget);

// str.split and str.rsplit; `separator` null: split at white space. At most `count` splits; -1: no limit.
std::vector<Text> split_text(const Text& text, const std::string* separator, std::int64_t count, Budget& budget);
std::vector<Text> split_text_from_right(const Text& text, const std::string* separator, std::int64_t count, Budget& budget);
std::vector<Text> lines_of_text(const Text& text, bool keep_ends, Budget& budget);  // str.splitlines

}  // namespace gyr::jinja
