// SPDX-License-Identifier: BSD-3-Clause
// Placement of a weight: the part of it that a rank holds, as boxes. Used by initialisation, gradient reduction and
// norm, checkpoints, dumps and resharding.
#pragma once

#include <array>
#include <optional>

#include "kernels/base/box.hpp"
#include "modules/weights/weight.hpp"

namespace gyr {

// Index of a rank among the ranks that differ from it only along some axes.
struct Coordinate {
  int ranks = 1, rank = 0;
};
// Coordinates of a rank along every axis. By default there is one rank.
struct Coordinates {
  std::array<Coordinate, axis_names.size()> along = {};
  Coordinate experts = {};  // coordinate among the expert-parallel ranks, which process different tokens
  Coordinate& operator[](Axis axis) { return along[std::size_t(axis)]; }
  const Coordinate& operator[](Axis axis) const { return along[std::size_t(axis)]; }
};

// Experts of a rank, out of `count`, which must be divisible by the number of expert-parallel ranks.
inline Span experts_of(const Coordinate& distributed, Index count) {
  const Index each = count / distributed.ranks;
  return {distributed.rank * each, (distributed.rank + 1) * each};
}
// Ranks with other tokens that hold the same weights as this one: all of them; for expert weights, one rank of each
// block of expert-parallel neighbours.
inline Coordinate replicas_of(bool experts, const Coordinate& tokens, const Coordinate& distributed) {
  return experts ? Coordinate{tokens.ranks / distributed.ranks, tokens.rank / distributed.ranks} : tokens;
}

// Coordinates of a rank within a team of tensor-parallel ranks, as if there were no others. Empty if it is not in the
// team; unchanged if the team is empty.
std::optional<Coordinates> within(const Span& team, Coordinates);

// A box of a weight that a rank holds.
struct Held {
  Box box;             // index range per dimension in the unsharded weight, never empty
  Shape local;         // position of the box's first corner in the rank's shard
  Coordinates copies;  // for each axis, index among the ranks that hold the same box

  // Index among the copies that differ along these axes.
  Coordinate copy(Axes along = all_axes) const;
  bool first_copy() const { return copy().rank == 0; }
};

struct Placement {
  Shape shape;  // shape of the rank's shard: equal on all ranks of the weight's team, zero on others; elements outside of all boxes are padding
  std::vector<Held> boxes;
};

// The boxes are all combinations of the parts along each sharded dimension; the first sharding varies slowest.
// Exit::config if units do not divide; the message lists valid counts.
Placement place(const Weight&, const Coordinates&);

// Boxes of the elements [first, last) of the row-major shard, for flat (ZeRO) sharding regardless of rows.
std::vector<Held> pieces_of(const Placement&, Index first, Index last);

// Visits each contiguous stretch of the elements that a rank holds: first logical element, first local element, count,
// and the box that contains it.
template <class Visit>
void stretches(const Weight& weight, const Placement& placement, Visit&& visit) {
  for (const Held& held : placement.boxes)
    box_runs(weight.shape, held.box, placement.shape, {held.local, held.box.count},
             [&](Index logical, Index local, Index count) { visit(logical, local, count, held); });
}

}  // namespace gyr
