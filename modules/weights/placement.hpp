// SPDX-License-Identifier: BSD-3-Clause
// What a rank holds of a weight, in boxes. Whoever needs to know it asks here: initial values, reductions of gradients and their norm,
// checkpoints, dumps, and moves from one layout to another.
#pragma once

#include <array>
#include <optional>

#include "kernels/base/box.hpp"
#include "modules/weights/weight.hpp"

namespace gyr {

// Where a rank stands among those that differ from it along some axes.
struct Coordinate {
  int ranks = 1, rank = 0;
};
// Along every axis. Where nothing is said, the rank is alone.
struct Coordinates {
  std::array<Coordinate, axis_names.size()> along = {};
  Coordinate experts = {};  // among the ranks with other tokens that deal experts among themselves
  Coordinate& operator[](Axis axis) { return along[std::size_t(axis)]; }
  const Coordinate& operator[](Axis axis) const { return along[std::size_t(axis)]; }
};

// The experts that a rank has of so many, which its ranks divide.
inline Span experts_of(const Coordinate& distributed, Index count) {
  const Index each = count / distributed.ranks;
  return {distributed.rank * each, (distributed.rank + 1) * each};
}
// Of ranks with other tokens those that hold the same as this one: all, and of experts one of each block of neighbours that deal them among
// themselves.
inline Coordinate replicas_of(bool experts, const Coordinate& tokens, const Coordinate& distributed) {
  return experts ? Coordinate{tokens.ranks / distributed.ranks, tokens.rank / distributed.ranks} : tokens;
}

// Of a rank of the tensor axis within a team of them: as if there were no others. Nothing where it is not in the team; as it is where that is empty.
std::optional<Coordinates> within(const Span& team, Coordinates);

// A box of a weight that a rank holds.
struct Held {
  Box box;             // in the whole weight, never empty
  Shape local;         // where its corner lies in the rank's share
  Coordinates copies;  // among the ranks that hold the same box, by the axes they differ along

  // Among those that differ along these axes.
  Coordinate copy(Axes along = all_axes) const;
  bool first_copy() const { return copy().rank == 0; }
};

struct Placement {
  Shape shape;  // of the rank's share, the same on every rank of the weight's team, nothing on others; elements that no box covers only pad
  std::vector<Held> boxes;
};

// Boxes are the products of what the weight's shardings give along each dimension, that of the first sharding changing slowest. Exit::config
// naming the counts that would work where units do not divide.
Placement place(const Weight&, const Coordinates&);

// The same of the elements [first, last) of the row-major share alone: for numbers that are cut flat, whatever their rows are.
std::vector<Held> cut(const Placement&, Index first, Index last);

// Visits each contiguous stretch of what a rank holds: logical first element, local first element, count, and the box it belongs to.
template <class Visit>
void stretches(const Weight& weight, const Placement& placement, Visit&& visit) {
  for (const Held& held : placement.boxes)
    box_runs(weight.shape, held.box, placement.shape, {held.local, held.box.count},
             [&](Index logical, Index local, Index count) { visit(logical, local, count, held); });
}

}  // namespace gyr
