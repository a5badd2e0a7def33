// SPDX-License-Identifier: BSD-3-Clause
// Breakdown of a rank's memory, line by line, for the report of gyrfalcon plan.
#pragma once

#include <string>
#include <vector>

#include "src/engine/step/engine.hpp"

namespace gyr {

struct MemoryLine {
  Memory category;
  std::string what;
  Index bytes;
};

// Lines for weights, gradients, optimizer and activations after a dry run. The lines of a category add up to its
// Capacity::bytes: the last one is the remainder, such as alignment, gaps and temporary tensors.
std::vector<MemoryLine> memory_lines(Engine&);

// Tensors of a recorded allocation script that are kept from task to task, at the time when these take the most memory:
// bytes by name, largest first.
std::vector<std::pair<std::string, Index>> largest_kept_tensors(const Script&);

}  // namespace gyr
