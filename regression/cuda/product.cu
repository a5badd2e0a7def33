// SPDX-License-Identifier: BSD-3-Clause
// For nvcc alone: what product.hpp takes of the machine, as instructions.
#include "regression/cuda/product.hpp"

namespace gyr::cuda::testing {

void (*const compiled)(Mistake, Global<const bf16>, Global<const bf16>, Global<float>) = product;

}  // namespace gyr::cuda::testing
