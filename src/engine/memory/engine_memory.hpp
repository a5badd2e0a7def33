// SPDX-License-Identifier: BSD-3-Clause
// The arenas of an engine: as large as a dry run has found, or, where that is to be found (null), those of a dry run.
#pragma once

#include "kernels/device/arena.hpp"
#include "src/engine/memory/capacity.hpp"

namespace gyr {

inline Arena arena(Memory category, const Capacity* capacity) {
  return capacity ? Arena(category, capacity->bytes(category)) : Arena::dry_run(category);
}

inline Arena working_memory(const Capacity* capacity, const Arena* shared) {
  if (capacity && shared) return shared->part(Memory::activations, 0, capacity->working());
  return capacity ? Arena(Memory::activations, capacity->working()) : Arena::dry_run(Memory::activations);
}

// Behind the slots of forwards alone.
inline Arena scratch(const Arena& working, const Capacity* capacity) {
  if (!capacity) return Arena::dry_run(Memory::scratch);
  return working.part(Memory::scratch, capacity->forward_slots(), capacity->working() - capacity->forward_slots());
}

}  // namespace gyr
