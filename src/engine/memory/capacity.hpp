// SPDX-License-Identifier: BSD-3-Clause
// What a rank takes of memory, known before it is taken.
#pragma once

#include <memory>
#include <vector>

#include "kernels/device/arena.hpp"

namespace gyr {

// Slots of a chunk, of `bytes` each.
struct SlotMemory {
  int count = 0;
  Index bytes = 0;
};

// Slots of a chunk whose micro-batches replay a script: bytes of each, and of what the slots of all chunks share. `host`: bytes of each
// that are swapped to the host.
struct ReplayedSlots {
  int count = 0;
  Index bytes = 0, shared = 0, host = 0;
  std::shared_ptr<const Script> script = nullptr;
};
Index slot_bytes(const std::vector<ReplayedSlots>&);    // of all slots of all chunks
Index shared_bytes(const std::vector<ReplayedSlots>&);  // the most of any chunk

Index host_bytes(const std::vector<ReplayedSlots>&);  // of all slots of all chunks

// Bytes a rank takes, by category. Forwards with backwards on the one hand, forwards alone and what else is computed on the other follow each
// other and lie in the same memory: slots at its begin, the rest of it is scratch.
struct Capacity {
  Index weights = 0, gradients = 0, optimizer = 0;
  std::vector<ReplayedSlots> training = {};
  std::vector<SlotMemory> forwards = {};
  Index scratch = 0;  // outside of what is replayed
  Index live = 0;     // most bytes of slots and scratch that a step needs at once, in a dry run
  Index forward_slots() const;
  Index working() const;  // slots and scratch
  Index bytes(Memory) const;
  Index total() const;
  Index host() const { return host_bytes(training); }  // beside that, of what is swapped
};

// Room for either; without backwards.
Capacity most_of(const Capacity&, const Capacity&);

}  // namespace gyr
