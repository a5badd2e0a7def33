// SPDX-License-Identifier: BSD-3-Clause
// A layout is a value: axes with their sizes, which rank stands where, and which layers each stage holds.
// A process may hold several.
#pragma once

#include <string>
#include <vector>

#include "kernels/tensor.hpp"
#include "modules/placement.hpp"

namespace gyr {

// Weights may be sharded over these axes. Ranks of a stage that differ along others hold the same weights.
inline constexpr Axes weight_axes = Axis::tensor;

struct LayoutAxis {
  Axis axis;
  int size;
};

// Half-open range of layers.
struct Span {
  Index first = 0, last = 0;
  Index size() const { return last - first; }
  bool operator==(const Span&) const = default;
};

struct Layout {
  std::vector<LayoutAxis> axes;  // outermost first: neighbours along the last axis are neighbours in rank
  std::vector<int> permutation;  // permutation[position] = rank that stands there; empty: position itself
  std::vector<Span> stages;      // layers of each position of the pipeline axis
  bool sequence = false;         // ranks of the tensor axis keep shares of the residual stream's rows (sequence parallelism)

  int ranks() const { return size(all_axes); }
  // Positions along these axes together: 1 along axes that the layout does not have.
  int size(Axes along) const;
  // Which of them a position of the grid is: its coordinates along these axes as one number, that of the innermost counting fastest.
  int coordinate(int position, Axes along) const;
  // The same axis by axis; along axes that are not among these a rank is alone.
  Coordinates coordinates(int position, Axes along = all_axes) const;
  // The position with the coordinates that `coordinate_along` says.
  template <class CoordinateAlong>
  int position_at(CoordinateAlong&& coordinate_along) const {
    int position = 0;
    for (const LayoutAxis& a : axes) position = position * a.size + coordinate_along(a.axis);
    return position;
  }
  // Parts of the residual stream's rows.
  int stream_parts() const { return sequence ? size(Axis::tensor) : 1; }
  // As "2 data x 1 pipeline x 4 tensor".
  std::string text() const;
  int position_of(int rank) const;
  int rank_at(int position) const { return permutation.empty() ? position : permutation[position]; }
};

// data x pipeline x tensor ranks, in this or another order of the axes. An empty order is that of their enumeration.
Layout grid_layout(int data, int pipeline, int tensor, std::vector<Span> stages, std::vector<int> permutation = {},
                   const std::vector<Axis>& order = {});

// Cuts consecutive layers of the given costs into `stages` runs so that the dearest stage is as cheap as can be; `before` and `after`
// are what the first and the last stage carry besides (embedding, head). Every stage gets at least one layer.
std::vector<Span> cut_stages(const std::vector<double>& costs, double before, double after, int stages);

// Exit::config unless `permutation` is empty or an arrangement of 0 .. ranks-1.
void check_permutation(const std::vector<int>& permutation, int ranks);

}  // namespace gyr
