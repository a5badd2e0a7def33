// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr::backend {

// Number of rows of a GEMM to compute at a time, if its result of `columns` columns is consumed at once and each block
// of rows adds to a gradient as large as the matrix. Enough rows for full GEMM throughput and few passes over the
// gradient, few enough to keep the result small.
Index gemm_row_layout(Index columns);

}  // namespace gyr::backend
