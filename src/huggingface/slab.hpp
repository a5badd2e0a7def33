// SPDX-License-Identifier: BSD-3-Clause
// Slabs: groups of rows in which tensors are copied between a checkpoint and a Hugging Face folder.
#pragma once

#include <utility>
#include <vector>

#include "kernels/base/box.hpp"
#include "kernels/base/scalar.hpp"

namespace gyr {

struct Slab {
  std::size_t tensor;  // index in the list passed to slabs_of
  Box box;             // complete rows of the tensor
  Index bytes;         // bytes of the slab in the checkpoint
};

// Splits all rows of tensors of these types and shapes, in order, into slabs of a few MiB. A slab consists of complete
// chunks of the checkpoint, so that no chunk is read or written twice.
std::vector<Slab> slabs_of(const std::vector<std::pair<DType, Shape>>& tensors);
Index largest(const std::vector<Slab>&);  // bytes of the largest slab

}  // namespace gyr
