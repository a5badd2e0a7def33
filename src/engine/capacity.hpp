// SPDX-License-Identifier: BSD-3-Clause
// What a rank takes of memory, known before it is taken.
#pragma once

#include <vector>

#include "kernels/arena.hpp"

namespace gyr {

// Slots of a chunk, of `bytes` each.
struct SlotMemory {
  int count = 0;
  Index bytes = 0;
};

// Bytes a rank takes, by category; activations are all slots of all chunks.
struct Capacity {
  Index weights = 0, gradients = 0, optimizer = 0, scratch = 0, communication = 0;
  std::vector<SlotMemory> slots = {};
  Index bytes(Memory) const;
  Index total() const;
};

// Room for either.
Capacity most_of(const Capacity&, const Capacity&);

}  // namespace gyr
