// SPDX-License-Identifier: BSD-3-Clause
// Which known name a misspelt one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gyr {

// Letters to insert, delete, replace or swap with their neighbour to turn `a` into `b` (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// The name closest to `word`, or "" when none is close enough to be a slip of the fingers.
std::string nearest(std::string_view word, std::span<const std::string> names);

}  // namespace gyr
