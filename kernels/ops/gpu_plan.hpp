// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of the CUDA kernels, for a build for hosts that plans a run on GPUs. The functions allocate what the
// kernels of kernels/cuda allocate in the same call, so that both builds plan the same memory.
#pragma once

#include "kernels/ops/attention.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/ssd.hpp"

namespace gyr {

// Number of rows of a GEMM to compute at a time, if its result of `columns` columns is consumed at once and each block
// of rows adds to a gradient as large as the matrix. Enough rows for full GEMM throughput and few passes over the
// gradient, few enough to keep the result small.
Index gemm_row_layout(const Device&, Index columns);

// Bytes of the cuBLASLt workspace of a GEMM. Split-K needs one copy of C for each split.
Index gpu_gemm_workspace(const GemmExtents&, DType operands);

// One function of the scan (kernels/ops/ssd.hpp, kernels/ops/ssd_chunk.hpp).
enum class ScanCall { scan, backward, chunk_states, outputs, outputs_backward, chunk_states_backward };
void allocate_gpu_scan(Arena& scratch, const SsdShape&, DType operands, ScanCall);

// Parts of the gradient of keys and values that different blocks add up, in attention_backward.
void allocate_gpu_attention_backward(Arena& scratch, const AttentionShape&, DType operands);

// Runs body(device). If a build for hosts plans for GPUs, allocate() takes the scratch instead, and no work is counted.
template <class Allocate, class Body>
void planned_for_gpu(Device& dev, const Allocate& allocate, const Body& body) {
  if (dev.plans_foreign_gpu()) allocate(dev.scratch);
  else body(dev);
}

}  // namespace gyr
