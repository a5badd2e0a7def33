// SPDX-License-Identifier: BSD-3-Clause
// Memory planning: places memory blocks with known lifetimes so that together they need as little memory as possible.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// A memory block, alive from event `first` until before event `last`. Blocks whose lifetimes overlap must not overlap
// in memory.
struct MemoryBlock {
  Index first = 0, last = 0;
  Index bytes = 0;
};

struct MemoryPlan {
  std::vector<Index> offsets;  // offset of each block, in the given order
  Index bytes = 0;             // total size: the highest end of a block
  Index live = 0;              // most bytes alive at once, a lower bound for any plan
  bool optimal = false;        // proven: bytes == live, or all placements have been tried
};

// Sizes are rounded up to `alignment`. First fit in the order of the starts is tried first; it is final if it needs
// only `live` bytes or if there are more than 4000 blocks. Otherwise each of four orders (start, size, lifetime, size
// times lifetime) places every block at the lowest free offset. While the best plan needs more than `live`, the block
// with the highest end is moved to an earlier place in the order, for about `nodes` placements. Then branch and bound
// tries other orders, for at most `nodes` steps.
MemoryPlan plan_memory(std::span<const MemoryBlock> blocks, Index alignment = 256, Index nodes = 100000);

// Memory block of a micro-batch. `lasting`: it stays alive while other micro-batches run. A slot is the memory of one
// micro-batch in flight.
struct SlotBlock : MemoryBlock {
  bool lasting = false;
};

struct SlotPlan {
  std::vector<Index> offsets;  // offset of each block in bytes; offsets from `slot` on are in the memory that all slots share
  Index slot = 0, shared = 0;  // bytes of a slot (memory of one micro-batch), and of the memory that all slots share
};

// Lasting blocks are placed in the slot of their micro-batch. Other blocks are placed in the same slot if it has room
// during their lifetime, else in memory that all slots share. `exclusive`: there is only one slot, which then holds all
// blocks.
SlotPlan plan_slot(std::span<const SlotBlock> blocks, bool exclusive, Index alignment = 256);

}  // namespace gyr
