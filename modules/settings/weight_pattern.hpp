// SPDX-License-Identifier: BSD-3-Clause
// Patterns that name weights in a deck: '*' stands for any letters, '?' for any one, all else for itself, and the whole name counts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// Letters to insert, delete or replace in `name` until the pattern matches; 0: it does.
int pattern_distance(std::string_view pattern, std::string_view name);
inline bool matches(std::string_view pattern, std::string_view name) { return pattern_distance(pattern, name) == 0; }
bool matches_any(std::span<const std::string> patterns, std::string_view name);

// Exit::config naming the nearest weight where a pattern of deck key `key` matches none.
void check_patterns(std::string_view key, std::span<const std::string> patterns, std::span<const std::string> weights);

}  // namespace gyr
