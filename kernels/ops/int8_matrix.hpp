// SPDX-License-Identifier: BSD-3-Clause
// Weights in one byte each, for models that are read and not trained: whole numbers, and a scale for every block of neighbours in a row.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// Element (r, c) is values[r * columns + c] * scales[r * blocks() + c / block]. Rows lie one behind the other.
struct Int8Matrix {
  static constexpr Index block = 64;  // a last one may be shorter
  static constexpr Index largest = 127;

  std::int8_t* values = nullptr;
  float* scales = nullptr;
  Index rows = 0, columns = 0;

  static constexpr Index blocks(Index columns) { return (columns + block - 1) / block; }
  GYR_FUNCTION Index blocks() const { return (columns + block - 1) / block; }
  explicit operator bool() const { return values != nullptr; }
};

// to = w, of one shape: scales are the largest magnitude of a block over 127, so that no element is off by more than half of that, 1/254 of its
// block's largest. A block that is not finite has a scale that is none.
template <class T>
void quantize(Device&, Matrix<const T> w, const Int8Matrix& to);

// y (R,N) = alpha x (R,K) w' + beta y. Few rows, but of double, read w once, as it is stored, and no row depends on another; for more, rows
// of w are widened to T on the device's scratch, some at a time. beta = 0 does not read y. Counted as "gemm_int8".
template <class T, class S>
void linear(Device&, Matrix<const T> x, const Int8Matrix& w /*(N,K)*/, Matrix<S> y, double alpha = 1, double beta = 0);

}  // namespace gyr
