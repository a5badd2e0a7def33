// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/memory/capacity.hpp"

#include <algorithm>

namespace gyr {

Index slot_bytes(const std::vector<ReplayedSlots>& chunks) {
  Index sum = 0;
  for (const ReplayedSlots& chunk : chunks) sum += chunk.count * chunk.bytes;
  return sum;
}

Index shared_bytes(const std::vector<ReplayedSlots>& chunks) {
  Index most = 0;
  for (const ReplayedSlots& chunk : chunks) most = std::max(most, chunk.shared);
  return most;
}

Index host_bytes(const std::vector<ReplayedSlots>& chunks) {
  Index sum = 0;
  for (const ReplayedSlots& chunk : chunks) sum += chunk.count * chunk.host;
  return sum;
}

Index Capacity::forward_slots() const {
  Index sum = 0;
  for (const SlotMemory& chunk : forwards) sum += chunk.count * chunk.bytes;
  return sum;
}

Index Capacity::working() const { return std::max(slot_bytes(training) + shared_bytes(training), forward_slots() + scratch); }

Index Capacity::bytes(Memory category) const {
  const Index slots = training.empty() ? forward_slots() : slot_bytes(training);
  switch (category) {
    case Memory::weights: return weights;
    case Memory::gradients: return gradients;
    case Memory::optimizer: return optimizer;
    case Memory::activations: return slots;
    case Memory::scratch: return working() - slots;
  }
  return 0;
}

Capacity most_of(const Capacity& a, const Capacity& b) {
  Capacity most{std::max(a.weights, b.weights), std::max(a.gradients, b.gradients), std::max(a.optimizer, b.optimizer)};
  most.forwards = a.forwards.size() > b.forwards.size() ? a.forwards : b.forwards;
  most.scratch = std::max(a.scratch, b.scratch);
  for (std::size_t i = 0; i < std::min(a.forwards.size(), b.forwards.size()); ++i)
    most.forwards[i] = {std::max(a.forwards[i].count, b.forwards[i].count), std::max(a.forwards[i].bytes, b.forwards[i].bytes)};
  return most;
}

Index Capacity::total() const {
  Index sum = 0;
  for (int i = 0; i < memory_categories; ++i) sum += bytes(Memory(i));
  return sum;
}

}  // namespace gyr
