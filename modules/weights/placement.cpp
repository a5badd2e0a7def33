// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/placement.hpp"

#include <numeric>

namespace gyr {

namespace {

// A part of a dimension: logical indices [global, global + extent) are stored at [local, local + extent).
struct PlacedRun {
  Index global, local, extent;
  Coordinate copies;  // index among the ranks of the sharding axis that hold the same part
};

// Adds the parts of a run that this rank holds, given the global and local start of the run. Returns the number of
// local rows that the run takes.
Index place_run(const std::string& name, const Run& run, Axis axis, Index global, Index local, const Coordinate& at, std::vector<PlacedRun>& pieces) {
  const auto [ranks, rank] = at;
  if (run.units == 0) {
    const Index each = (run.extent + ranks - 1) / ranks;
    const Index first = std::min(run.extent, each * rank), last = std::min(run.extent, first + each);
    pieces.push_back({global + first, local, last - first, {}});
    return each;
  }
  const Index unit = run.extent / run.units;
  if (run.units % ranks == 0) {
    const Index each = run.units / ranks * unit;
    pieces.push_back({global + each * rank, local, each, {}});
    return each;
  }
  require(ranks % run.units == 0, Exit::config,
          "{}: its {} units (heads, groups or channels) cannot be sharded over {} {} ranks; set parallel.{} to a divisor or a multiple of {}", name,
          run.units, ranks, name_of(axis), name_of(axis), run.units);
  const Index parts = run.divisible ? std::gcd(unit, ranks / run.units) : 1, part = unit / parts;
  const int copies = int(ranks / (run.units * parts));
  pieces.push_back({global + part * (rank / copies), local, part, {copies, rank % copies}});
  return part;
}

// Parts of a sharded dimension on this rank, and its local extent.
std::pair<std::vector<PlacedRun>, Index> place_dimension(const Weight& w, const Sharding& sharding, const Coordinate& at) {
  std::vector<PlacedRun> pieces;
  Index global = 0, local = 0;
  for (const Run& run : sharding.runs) {
    local += place_run(w.name, run, sharding.axis, global, local, at, pieces);
    global += run.extent;
  }
  ensure(global == w.shape.at(sharding.dim), "{}: runs cover {} of {}", w.name, global, w.shape[sharding.dim]);
  return {std::move(pieces), local};
}

// Splits each box along one dimension.
std::vector<Held> split(const std::vector<Held>& boxes, const Sharding& sharding, const std::vector<PlacedRun>& pieces) {
  std::vector<Held> parts;
  for (const Held& box : boxes)
    for (const PlacedRun& piece : pieces) {
      if (piece.extent == 0) continue;
      Held& part = parts.emplace_back(box);
      part.box.first[sharding.dim] = piece.global, part.box.count[sharding.dim] = piece.extent;
      part.local[sharding.dim] = piece.local;
      part.copies[sharding.axis] = piece.copies;
    }
  return parts;
}

// Boxes of the elements [first, last) of a row-major tensor: the rest of a first row, full rows, the start of a last
// row. Partial rows are split likewise.
void flat_boxes(const Shape& shape, std::size_t dim, Box box, Index first, Index last, std::vector<Box>& boxes) {
  if (first >= last) return;
  Index row = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) row *= shape[d];
  const auto within = [&](Index r, Index from, Index to) {
    Box inner = box;
    inner.first[dim] = r, inner.count[dim] = 1;
    flat_boxes(shape, dim + 1, inner, from, to, boxes);
  };
  const Index begin = (first + row - 1) / row, end = last / row;  // range of full rows
  if (begin > end) return within(end, first - end * row, last - end * row);
  if (first < begin * row) within(begin - 1, first - (begin - 1) * row, row);
  if (begin < end) {
    box.first[dim] = begin, box.count[dim] = end - begin;
    boxes.push_back(box);
  }
  if (end * row < last) within(end, 0, last - end * row);
}

}  // namespace

Coordinate Held::copy(Axes along) const {
  Coordinate all;
  for (std::size_t axis = 0; axis < axis_names.size(); ++axis) {
    if (!along.has(Axis(axis))) continue;
    const Coordinate& one = copies[Axis(axis)];
    all = {all.ranks * one.ranks, all.rank * one.ranks + one.rank};
  }
  return all;
}

std::optional<Coordinates> within(const Span& team, Coordinates at) {
  if (team.size() == 0) return at;
  Coordinate& tensor = at[Axis::tensor];
  if (tensor.rank < team.first || tensor.rank >= team.last) return {};
  tensor = {int(team.size()), tensor.rank - int(team.first)};
  return at;
}

Placement place(const Weight& w, const Coordinates& everywhere) {
  const std::optional<Coordinates> inside = within(w.team, everywhere);
  if (!inside || (w.expert && !experts_of(everywhere.experts, w.expert.count).contains(w.expert.number))) return {Shape(w.shape.size(), 0), {}};
  const Coordinates& at = *inside;
  Placement placement{w.shape, {{full_box(w.shape), Shape(w.shape.size(), 0), at}}};
  for (const Sharding& sharding : w.shardings) {
    ensure(placement.shape[sharding.dim] == w.shape[sharding.dim], "{}: dimension {} is sharded twice", w.name, sharding.dim);
    const auto [pieces, extent] = place_dimension(w, sharding, at[sharding.axis]);
    placement.shape[sharding.dim] = extent;
    placement.boxes = split(placement.boxes, sharding, pieces);
  }
  return placement;
}

std::vector<Held> pieces_of(const Placement& placement, Index first, Index last) {
  std::vector<Box> boxes;  // boxes in coordinates of the shard
  flat_boxes(placement.shape, 0, full_box(placement.shape), first, last, boxes);
  std::vector<Held> parts;
  for (const Held& held : placement.boxes)
    for (const Box& box : boxes)
      if (const auto both = common({held.local, held.box.count}, box))
        parts.push_back({moved(*both, held.local, held.box.first), both->first, held.copies});
  return parts;
}

}  // namespace gyr
