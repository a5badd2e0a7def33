// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace gyr::cuda {

// Whether what multiplies by products of warpgroups shall do so. Before it does for the first time in a process, attention, its gradient and products
// of experts are computed of some drawn numbers with them and without, by instructions that every GPU from 8.0 on has: Exit::device where the two do
// not agree. GYR_CUDA_TRIAL=off: without that.
bool wgmma_passes_self_test();

}  // namespace gyr::cuda
