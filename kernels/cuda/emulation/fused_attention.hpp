// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// How often the library in place of cuDNN was told of attention.
Index fused_calls();

}  // namespace gyr::cuda
