// SPDX-License-Identifier: BSD-3-Clause
// Numbers as Python reads and writes them. Integers have 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyr::jinja {

// End of the number literal at `at` in a template; `at` itself if there is none.
std::size_t end_of_real(std::string_view text, std::size_t at);
std::size_t end_of_integer(std::string_view text, std::size_t at);  // there is a digit at `at`

// The value by the rules of Python's int(text, base) and float(text): with white space around it and _ between digits.
// Base 0 is that of a prefix such as 0x. Empty if the text is no number, or if the integer does not fit into 64 bits;
// `too_large` is then true.
std::optional<std::int64_t> integer_of(std::string_view text, int base, bool* too_large = nullptr);
std::optional<double> real_of(std::string_view text);

std::string shown_real(double value);  // repr(value)

}  // namespace gyr::jinja
