// SPDX-License-Identifier: BSD-3-Clause
// Compiled by nvcc only: instantiates the kernels of tiled_gemm.hpp and warpgroup_mma.hpp to check their instructions.
#include "regression/cuda/product.hpp"

#include "regression/cuda/warpgroup_mma.hpp"

namespace gyr::cuda::testing {

void (*const compiled)(Mistake, Global<const bf16>, Global<const bf16>, Global<float>) = tiled_gemm;
void (*const compiled_group)(GroupMistake, Global<const bf16>, Global<const bf16>, Global<float>) = warpgroup_mma;

}  // namespace gyr::cuda::testing
