// SPDX-License-Identifier: BSD-3-Clause
// Arenas of an engine. With a capacity (from a dry run) they allocate that many bytes; without one (null) they only
// count, as in a dry run.
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

// Scratch arena: the working memory after the forward-only slots.
inline Arena scratch(const Arena& working, const Capacity* capacity) {
  if (!capacity) return Arena::dry_run(Memory::scratch);
  return working.part(Memory::scratch, capacity->forward_slots(), capacity->working() - capacity->forward_slots());
}

}  // namespace gyr
