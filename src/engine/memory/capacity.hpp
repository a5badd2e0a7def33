// SPDX-License-Identifier: BSD-3-Clause
// Memory plan of a rank: bytes by category, known before anything is allocated.
#pragma once

#include <memory>
#include <vector>

#include "kernels/device/arena.hpp"

namespace gyr {

// Forward-only activation slots of a chunk: their count, and bytes of each.
struct SlotMemory {
  int count = 0;
  Index bytes = 0;
};

// Training slots of a chunk. Their micro-batches replay a recorded allocation script, one of several if an input has
// several capacities. `bytes`: per slot. `shared`: memory that the slots of all chunks share. `host`: bytes per slot that
// are offloaded to host memory.
struct ReplayedSlots {
  int count = 0;
  Index bytes = 0, shared = 0, host = 0;
  std::vector<std::shared_ptr<const Script>> rooms = {};
};
Index slot_bytes(const std::vector<ReplayedSlots>&);    // device bytes: sum over all slots of all chunks
Index shared_bytes(const std::vector<ReplayedSlots>&);  // bytes that slots share: maximum over chunks

Index host_bytes(const std::vector<ReplayedSlots>&);  // host bytes: sum over all slots of all chunks

// Bytes of a rank by category. Training passes and forward-only work never run at the same time, so they use the same
// memory block: slots at its start, scratch after them.
struct Capacity {
  Index weights = 0, gradients = 0, optimizer = 0;
  std::vector<ReplayedSlots> training = {};
  std::vector<SlotMemory> forwards = {};
  Index scratch = 0;  // scratch of forward-only work and of everything else that is not replayed
  Index live = 0;     // dry run: maximum bytes of slots and scratch that a step uses at once
  Index forward_slots() const;
  Index working() const;  // bytes of the memory block for slots and scratch
  Index bytes(Memory) const;
  Index total() const;
  Index host() const { return host_bytes(training); }  // bytes of offloaded activations in host memory, not part of total()
};

// Capacity sufficient for either of two forward-only configurations; training slots are left out.
Capacity most_of(const Capacity&, const Capacity&);

}  // namespace gyr
