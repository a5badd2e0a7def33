// SPDX-License-Identifier: BSD-3-Clause
// Matrix products by oneDNN, whose kernels multiply bf16 where the processor does (AVX512-BF16, AMX): at twice the rate of float and more.
#pragma once

#include <string>

#include "kernels/ops/gemm.hpp"

namespace gyr {

// Whether this build has oneDNN, and whether this processor multiplies bf16 as well.
bool has_onednn();
bool multiplies_bf16();

// C = alpha op(A) op(B) + beta C, T float or bf16, accumulated in float. Takes its workspace from the device's scratch until the end of the caller's
// scope, on a dry run as well; what is compiled for a shape is kept by the device.
template <class T, class S>
void onednn_gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha, double beta);

// "oneDNN 2.6.3, bf16 in hardware", empty where this build has none.
std::string onednn_version();
// How many threads a product may use.
void set_onednn_threads(int threads);

}  // namespace gyr
