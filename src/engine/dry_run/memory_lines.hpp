// SPDX-License-Identifier: BSD-3-Clause
// What the bytes of a rank are, line by line, for people who wonder where they go.
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

// Of weights, gradients, optimizer, and of activations where they were rehearsed: the lines of each come to Capacity::bytes of it, the last one
// being what alignment and gaps take.
std::vector<MemoryLine> memory_lines(Engine&);

// What lasts in a script from one task to another when that is most, by name, the largest first.
std::vector<std::pair<std::string, Index>> largest_kept_tensors(const Script&);

}  // namespace gyr
