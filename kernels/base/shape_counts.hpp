// SPDX-License-Identifier: BSD-3-Clause
// Hash table of counts by shape, for few shapes that occur again and again. There is one line per shape, in order of
// first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gyr {

// Shape must have hash() and ==.
template <class Shape, class Count>
class ShapeCounts {
 public:
  using Line = std::pair<Shape, Count>;

  // Count of the shape; a new shape starts with Count{}.
  Count& operator[](const Shape& shape) { return lines_[place_of(shape)].second; }
  // Index of the shape's line, which does not change.
  std::size_t place_of(const Shape& shape) {
    if (2 * lines_.size() >= slots_.size()) grow();
    std::uint32_t& slot = slot_of(shape);
    if (slot == free) {
      lines_.emplace_back(shape, Count{});
      slot = std::uint32_t(lines_.size());
    }
    return slot - 1;
  }
  Line& line(std::size_t place) { return lines_[place]; }

  typename std::vector<Line>::const_iterator begin() const { return lines_.begin(); }
  typename std::vector<Line>::const_iterator end() const { return lines_.end(); }
  std::size_t size() const { return lines_.size(); }
  bool empty() const { return lines_.empty(); }
  void clear() { lines_.clear(), slots_.clear(); }

 private:
  static constexpr std::uint32_t free = 0;  // value of an empty hash-table entry; other entries hold the index of a line, plus one

  // Hash-table entry of the shape, or the empty entry where it belongs.
  std::uint32_t& slot_of(const Shape& shape) {
    const std::size_t last = slots_.size() - 1;
    std::size_t at = shape.hash() & last;
    while (slots_[at] != free && !(lines_[slots_[at] - 1].first == shape)) at = (at + 1) & last;
    return slots_[at];
  }
  void grow() {
    slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), free);
    for (std::size_t i = 0; i < lines_.size(); ++i) slot_of(lines_[i].first) = std::uint32_t(i + 1);
  }

  std::vector<Line> lines_;
  std::vector<std::uint32_t> slots_;  // hash table with linear probing; its size is a power of two, at least twice the number of lines
};

// Mixes the next number into a hash, so that all bits of the hash depend on it.
inline std::size_t mixed(std::size_t hash, std::uint64_t number) {
  hash = (hash ^ number) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

}  // namespace gyr
