// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr::backend {

// Rows of a product at a time where its result, of so many columns, serves at once and a gradient as large as the matrix is added up for each of
// them: enough that the product has its full rate and the gradient passes memory seldom, few enough that the result stays small.
Index gemm_row_layout(Index columns);

}  // namespace gyr::backend
