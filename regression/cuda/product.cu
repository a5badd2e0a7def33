// SPDX-License-Identifier: BSD-3-Clause
// For nvcc alone: what product.hpp and group_product.hpp take of the machine, as instructions.
#include "regression/cuda/product.hpp"

#include "regression/cuda/group_product.hpp"

namespace gyr::cuda::testing {

void (*const compiled)(Mistake, Global<const bf16>, Global<const bf16>, Global<float>) = product;
void (*const compiled_group)(GroupMistake, Global<const bf16>, Global<const bf16>, Global<float>) = group_product;

}  // namespace gyr::cuda::testing
