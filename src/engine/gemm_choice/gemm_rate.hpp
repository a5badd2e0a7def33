// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

// Measured GEMM throughput of this rank for large matrices in this precision, FLOP/s: the peak that MFU refers to.
double gemm_rate(DType);

}  // namespace gyr
