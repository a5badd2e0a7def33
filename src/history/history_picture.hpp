// SPDX-License-Identifier: BSD-3-Clause
// Losses of runs over their steps as a picture in SVG, of a few kB: for each run a line, the least and most around it where a point stands for
// several steps, and dots where it was validated. Its colours can be read on light and on dark paper.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

// Of the steps that count. Exit::data where no run has a loss that is a number.
std::string picture_of(const std::vector<RunHistory>&);

}  // namespace gyr
