// SPDX-License-Identifier: BSD-3-Clause
// Spelling suggestions: the known name that is nearest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gyr {

// Number of letters to insert, delete, replace or swap with their neighbour to turn `a` into `b` (optimal string
// alignment distance).
int edit_distance(std::string_view a, std::string_view b);

// The name nearest to `word`, or "" if no name is near enough to be meant by a typing error.
std::string nearest(std::string_view word, std::span<const std::string> names);

}  // namespace gyr
