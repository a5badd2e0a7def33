// SPDX-License-Identifier: BSD-3-Clause
// Where a weight of a model lies in a folder: most are a tensor of their own, some are stored in the other order of dimensions, or several of them
// in one tensor: their rows stacked or by turns, or along a dimension of its own.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

struct StoredPlace {
  std::string name;         // of the tensor
  bool transposed = false;  // its two dimensions are the weight's in the other order
  Span rows = {};           // of the stack, in the weight's order of dimensions, that are the weight's; empty: it is the whole tensor
  Index stack = 0;          // rows of the stack
  Index step = 1;           // of its rows every step-th from rows.first on is the weight's
  Index member = 0;         // number of the weight along a first dimension that it has not ...
  Index members = 0;        // ... where so many lie; 0: there is no such dimension
  bool in_blocks = false;   // of 4 bits, whose scales are a tensor beside it

  bool is_whole() const { return !transposed && stack == 0 && members == 0; }
  Index row_count() const { return (rows.size() + step - 1) / step; }
};

// A weight of the shape that its place gives it, read from the tensor that it lies in.
TensorReader part_of(const TensorReader& stored, const StoredPlace&);

struct StackedPart {
  StoredPlace place;
  TensorReader weight;
};
// The way back: the tensor in which these weights lie, all of one type.
TensorReader stack_of(const std::vector<StackedPart>&);

}  // namespace gyr
