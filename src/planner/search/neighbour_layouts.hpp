// SPDX-License-Identifier: BSD-3-Clause
// Layouts one step away from a layout, for a descent from a good layout to a better one.
#pragma once

#include <vector>

#include "src/planner/layouts/layout_space.hpp"

namespace gyr {

// Layouts that differ from `from` in one setting, or that move a factor of two from one axis of the grid to another.
// `shapes`: those of the search space.
std::vector<LayoutChoice> neighbours_of(const RunConfig&, const LayoutChoice& from, const std::vector<LayoutChoice>& shapes);

}  // namespace gyr
