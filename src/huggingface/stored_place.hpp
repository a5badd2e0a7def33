// SPDX-License-Identifier: BSD-3-Clause
// Place of a model weight in a Hugging Face folder. Most weights are a tensor of their own. Some are stored transposed.
// Some are fused into one tensor: with their rows stacked or interleaved, or along an additional first dimension.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

struct StoredPlace {
  std::string name;         // name of the tensor in the folder
  bool transposed = false;  // true: the tensor is stored as the transpose of the weight
  Span rows = {};           // the weight's rows in the stack, counted in the weight's order of dimensions; empty: the weight is the full tensor
  Index stack = 0;          // total rows of the stack; 0: the weight is not stacked
  Index step = 1;           // stride of interleaved rows: `run` of every `step` rows from rows.first on belong to the weight
  Index member = 0;         // index of the weight along an additional first dimension
  Index members = 0;        // size of that dimension, e.g. the number of experts; 0: there is no such dimension
  bool in_blocks = false;   // stored in MXFP4 blocks, with a separate tensor of scales
  Index run = 1;            // consecutive rows of the weight that stay together in the stack, e.g. those of a head

  bool is_plain() const { return !transposed && stack == 0 && members == 0; }
  Index row_count() const { return (rows.size() + step - 1) / step * run; }
  // Row of the stack that holds this row of the weight.
  Index stack_row(Index row) const { return rows.first + row / run * step + row % run; }
};

// Reader of one weight, given the reader of the tensor that contains it.
TensorReader part_of(const TensorReader& stored, const StoredPlace&);

struct StackedPart {
  StoredPlace place;
  TensorReader weight;
};
// Inverse of part_of: reader of the tensor that contains these weights, which must have the same type.
TensorReader stack_of(const std::vector<StackedPart>&);

}  // namespace gyr
