// SPDX-License-Identifier: BSD-3-Clause
// Rows of tensors as they travel between a checkpoint and a folder of published weights.
#pragma once

#include <utility>
#include <vector>

#include "kernels/base/box.hpp"
#include "kernels/base/scalar.hpp"

namespace gyr {

struct Slab {
  std::size_t tensor;  // in the list that slabs_of was given
  Box box;             // these rows, whole
  Index bytes;         // in the checkpoint
};

// All rows of tensors of these types and shapes, in their order, a few MB at a time: whole chunks of the checkpoint, so that none is read or
// written twice.
std::vector<Slab> slabs_of(const std::vector<std::pair<DType, Shape>>& tensors);
Index largest(const std::vector<Slab>&);  // bytes

}  // namespace gyr
