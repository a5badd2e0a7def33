// SPDX-License-Identifier: BSD-3-Clause
// Characters of text (valid UTF-8) as Python's str treats them: white space, line ends, letter case, length.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/budget.hpp"
#include "src/jinja/text.hpp"

namespace gyr::jinja {

bool is_python_space(char32_t c);  // str.isspace
bool is_line_end(char32_t c);      // characters at which str.splitlines splits
bool is_printable(char32_t c);     // str.isprintable
bool is_letter(char32_t c);        // str.isalpha
bool is_decimal(char32_t c);       // str.isdecimal
bool is_other_number(char32_t c);  // numbers that are not decimal digits, such as superscripts
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// str.isupper and str.islower: a letter has this case, and none has another one.
bool is_upper_text(std::string_view text);
bool is_lower_text(std::string_view text);

std::size_t length_of(std::string_view text);                         // number of characters
std::size_t byte_of(std::string_view text, std::size_t character);    // position of a character, at most text.size()
std::pair<std::size_t, std::size_t> stripped(std::string_view text);  // range without white space at either end
bool is_ascii(std::string_view text);

enum class Letters { upper, lower, title, capitalized };
// The text in another letter case, as by str.upper, lower, title and capitalize.
Text with_letters(const Text& text, Letters letters, Budget& budget);

}  // namespace gyr::jinja
