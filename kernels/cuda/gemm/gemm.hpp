// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kernels/device/device.hpp"

namespace gyr::cuda {

// x = by x; zeros, without reading it, where `by` is 0.
template <class T>
void scale(Device&, double by, Matrix<T> x);

}  // namespace gyr::cuda
