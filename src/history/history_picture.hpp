// SPDX-License-Identifier: BSD-3-Clause
// Loss curves of runs as an SVG picture of a few kB. Each run has a line with its last value at the end, a band from minimum
// to maximum if a point represents several steps, and circles for validations. The colours are legible on light and dark backgrounds.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

// Shows only steps that were not repeated later. Exit::data if no run has a finite loss.
std::string picture_of(const std::vector<RunHistory>&);

}  // namespace gyr
