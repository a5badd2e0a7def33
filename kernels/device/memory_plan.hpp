// SPDX-License-Identifier: BSD-3-Clause
// Places blocks of memory whose lifetimes are known beforehand so that together they take as little as can be.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Needed from event `first` to before event `last`. Blocks whose lifetimes meet must not overlap.
struct MemoryBlock {
  Index first = 0, last = 0;
  Index bytes = 0;
};

struct MemoryPlan {
  std::vector<Index> offsets;  // of each block, in their order
  Index bytes = 0;             // of all: the end of the highest
  Index live = 0;              // most bytes alive at once: no plan takes less
  bool optimal = false;        // known to be: bytes == live, or everything has been tried
};

// Bytes count as rounded up to `alignment`. Four orders (by size, by lifetime, by their product, as they come) place each block at the lowest
// offset that is free. While the best takes more than what is alive at once, the block that sticks out is placed earlier, for about `nodes`
// placements; then other orders are tried by branch and bound, at most `nodes` steps of it.
MemoryPlan plan_memory(std::span<const MemoryBlock> blocks, Index alignment = 256, Index nodes = 100000);

// A block of a micro-batch. `lasting`: needed when other micro-batches have their turn.
struct SlotBlock : MemoryBlock {
  bool lasting = false;
};

struct SlotPlan {
  std::vector<Index> offsets;  // of each block; from `slot` on they count in the memory that all slots share
  Index slot = 0, shared = 0;  // bytes
};

// What lasts lies in the slot of its micro-batch. What does not lies in the same slot where that leaves room meanwhile, else in memory that
// all slots share. `alone`: there is one slot only, which then takes everything.
SlotPlan plan_slot(std::span<const SlotBlock> blocks, bool alone, Index alignment = 256);

}  // namespace gyr
