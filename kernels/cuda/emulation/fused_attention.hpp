// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// Number of attention calls to the emulation of cuDNN so far.
Index fused_calls();

}  // namespace gyr::cuda
