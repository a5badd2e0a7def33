// SPDX-License-Identifier: BSD-3-Clause
// GEMM with oneDNN. It uses the bf16 instructions of the processor (AVX512-BF16, AMX) if there are any, with at least
// twice the throughput of fp32.
#pragma once

#include <string>

#include "kernels/ops/gemm.hpp"

namespace gyr {

// has_onednn: true if this build has oneDNN. multiplies_bf16: true if this processor also has bf16 instructions that
// oneDNN uses.
bool has_onednn();
bool multiplies_bf16();

// C = alpha op(A) op(B) + beta C, T float or bf16, accumulated in fp32. The workspace is allocated in the device's
// scratch until the end of the caller's scope, in a dry run as well. The device caches compiled kernels by shape.
template <class T, class S>
void onednn_gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, double alpha, double beta);

// For example "oneDNN 2.6.3, bf16 in hardware". Empty if this build has no oneDNN.
std::string onednn_version();
// Sets the maximum number of threads of a GEMM.
void set_onednn_threads(int threads);

}  // namespace gyr
