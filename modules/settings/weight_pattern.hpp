// SPDX-License-Identifier: BSD-3-Clause
// Patterns for weight names in a deck: '*' matches any letters, '?' one letter, other characters themselves. A pattern
// must match the full name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// Number of letters to insert, delete or replace in `name` until the pattern matches; 0: it matches.
int pattern_distance(std::string_view pattern, std::string_view name);
inline bool matches(std::string_view pattern, std::string_view name) { return pattern_distance(pattern, name) == 0; }
bool matches_any(std::span<const std::string> patterns, std::string_view name);

// Exit::config if a pattern of deck key `key` matches no weight; the message names the nearest weight.
void check_patterns(std::string_view key, std::span<const std::string> patterns, std::span<const std::string> weights);

}  // namespace gyr
