// SPDX-License-Identifier: BSD-3-Clause
// A rectangular part of a tensor.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/base/tensor.hpp"

namespace gyr {

// Half-open range [first, last) of indices.
struct Span {
  Index first = 0, last = 0;
  Index size() const { return last - first; }
  bool contains(Index i) const { return first <= i && i < last; }
  bool operator==(const Span&) const = default;
};

// A rectangular part of a tensor: its first index and its extent in each dimension.
struct Box {
  Shape first, count;
};
inline Box full_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

// A box of one tensor and an equally large box of another tensor that holds the same elements.
struct BoxPair {
  Box from, to;
};

// Intersection of two boxes of one tensor, if it is not empty.
inline std::optional<Box> common(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.first.size(); ++d) {
    both.first[d] = std::max(a.first[d], b.first[d]);
    both.count[d] = std::min(a.first[d] + a.count[d], b.first[d] + b.count[d]) - both.first[d];
    if (both.count[d] <= 0) return {};
  }
  return both;
}

// `inner`, translated by the distance from corner `from` to corner `to`.
inline Box moved(Box inner, const Shape& from, const Shape& to) {
  for (std::size_t d = 0; d < inner.first.size(); ++d) inner.first[d] += to[d] - from[d];
  return inner;
}

inline bool fits_within(const Box& box, const Shape& shape) {
  if (box.first.size() != shape.size() || box.count.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.first[d] < 0 || box.count[d] < 0 || box.first[d] > shape[d] - box.count[d]) return false;
  return true;
}

// Calls visit(from, to, count) for each run of elements that is contiguous both in `box` of a row-major tensor and in
// the equally large box `there` of another one. from and to are element offsets.
template <class Visit>
void box_runs(const Shape& shape, const Box& box, const Shape& other, const Box& there, Visit&& visit) {
  if (elements(box.count) == 0) return;
  // Dimensions from `inner` on are complete in both tensors. A run spans these and the dimension before them.
  std::size_t inner = shape.size();
  while (inner > 0 && box.count[inner - 1] == shape[inner - 1] && box.count[inner - 1] == other[inner - 1]) --inner;
  Index run = inner > 0 ? box.count[inner - 1] : 1;
  for (std::size_t d = inner; d < shape.size(); ++d) run *= shape[d];
  const auto offset = [](const Shape& full, const Shape& first, const Shape& at) {
    Index sum = 0;
    for (std::size_t d = 0; d < full.size(); ++d) sum = sum * full[d] + first[d] + at[d];
    return sum;
  };
  Shape at(shape.size(), 0);
  for (;;) {
    visit(offset(shape, box.first, at), offset(other, there.first, at), run);
    std::size_t d = inner > 0 ? inner - 1 : 0;
    for (; d > 0; --d) {
      if (++at[d - 1] < box.count[d - 1]) break;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace gyr
