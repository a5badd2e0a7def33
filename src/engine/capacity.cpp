// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/capacity.hpp"

#include <algorithm>

namespace gyr {

Index Capacity::bytes(Memory category) const {
  switch (category) {
    case Memory::weights: return weights;
    case Memory::gradients: return gradients;
    case Memory::optimizer: return optimizer;
    case Memory::activations: {
      Index sum = 0;
      for (const SlotMemory& chunk : slots) sum += chunk.count * chunk.bytes;
      return sum;
    }
    case Memory::scratch: return scratch;
    case Memory::communication: return communication;
  }
  return 0;
}

Capacity most_of(const Capacity& a, const Capacity& b) {
  Capacity most{std::max(a.weights, b.weights), std::max(a.gradients, b.gradients),         std::max(a.optimizer, b.optimizer),
                std::max(a.scratch, b.scratch), std::max(a.communication, b.communication), a.slots.size() > b.slots.size() ? a.slots : b.slots};
  for (std::size_t i = 0; i < std::min(a.slots.size(), b.slots.size()); ++i)
    most.slots[i] = {std::max(a.slots[i].count, b.slots[i].count), std::max(a.slots[i].bytes, b.slots[i].bytes)};
  return most;
}

Index Capacity::total() const {
  Index sum = 0;
  for (int i = 0; i < memory_categories; ++i) sum += bytes(Memory(i));
  return sum;
}

}  // namespace gyr
