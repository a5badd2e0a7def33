// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace gyr::cuda {

// True if kernels may use wgmma; false only inside the self-test, for its reference results. The first call in a
// process runs this self-test: attention, its gradient and the experts' grouped GEMMs on random data, with wgmma and
// with instructions that all GPUs from 8.0 on have. Exit::device if the results differ. GYR_CUDA_TRIAL=off skips the
// self-test.
bool wgmma_passes_self_test();

}  // namespace gyr::cuda
