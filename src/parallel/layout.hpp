// SPDX-License-Identifier: BSD-3-Clause
// A layout is a value: named axes with their sizes, which rank stands where, and which layers each stage holds.
// A process may hold several.
#pragma once

#include <string>
#include <vector>

#include "kernels/tensor.hpp"

namespace gyr {

struct LayoutAxis {
  std::string name;
  int size;
};

// Half-open range of layers.
struct Span {
  Index first = 0, last = 0;
  Index size() const { return last - first; }
};

struct Layout {
  std::vector<LayoutAxis> axes;  // outermost first: neighbours along the last axis are neighbours in rank
  std::vector<int> permutation;  // permutation[position] = rank that stands there; empty: position itself
  std::vector<Span> stages;      // layers of each position of the pipeline axis

  int ranks() const;
  int size(const std::string& axis) const;                      // 1 where there is no such axis
  int coordinate(int position, const std::string& axis) const;  // of a position in the grid
  int position_of(int rank) const;
  int rank_at(int position) const { return permutation.empty() ? position : permutation[position]; }
};

// data x pipeline x tensor, tensor fastest.
Layout grid_layout(int data, int pipeline, int tensor, std::vector<Span> stages, std::vector<int> permutation = {});

// Cuts consecutive layers of the given costs into `stages` runs so that the dearest stage is as cheap as can be; `before` and `after`
// are what the first and the last stage carry besides (embedding, head). Every stage gets at least one layer.
std::vector<Span> cut_stages(const std::vector<double>& costs, double before, double after, int stages);

// Exit::config unless `permutation` is empty or an arrangement of 0 .. ranks-1.
void check_permutation(const std::vector<int>& permutation, int ranks);

}  // namespace gyr
