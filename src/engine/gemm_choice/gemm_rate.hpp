// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

// Rate of large matrix products of a model of this precision on this rank, flop/s: the peak against which a CPU's utilisation is measured.
double gemm_rate(DType);

}  // namespace gyr
