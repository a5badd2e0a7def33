// SPDX-License-Identifier: BSD-3-Clause
// Hash map from an ordered pair of token ids to a 32-bit value: a flat table with linear probing and no allocation per
// entry.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace gyr {

class PairMap {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t(0);  // reserved; must not be stored as a value

  PairMap() : slots_(64) {}

  // The value of (left, right), or `none`.
  std::uint32_t find(std::int32_t left, std::int32_t right) const { return slots_[slot_of(key_of(left, right))].value; }

  // Inserts `value` unless the pair already has one. Returns the stored value and true if it was inserted.
  std::pair<std::uint32_t, bool> insert(std::int32_t left, std::int32_t right, std::uint32_t value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const std::uint64_t key = key_of(left, right);
    Slot& slot = slots_[slot_of(key)];
    if (slot.value != none) return {slot.value, false};
    slot = {key, value};
    ++count_;
    return {value, true};
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t value = none;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) { return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right); }

  // Index of the slot that contains `key`, or of the free slot for it. Fibonacci hashing: upper bits of key times
  // 2^64/phi.
  std::size_t slot_of(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    std::size_t at = std::size_t(mixed >> (64 - std::countr_zero(slots_.size())));
    while (slots_[at].value != none && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.value != none) slots_[slot_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_;  // hash table; the size is a power of two, and at most half of the entries are used
  std::size_t count_ = 0;
};

}  // namespace gyr
