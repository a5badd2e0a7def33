// SPDX-License-Identifier: BSD-3-Clause
// Int8 weights for inference: integers of one byte, and a scale for every block of neighbouring elements in a row.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// Element (r, c) is values[r * columns + c] * scales[r * blocks() + c / block]. Rows are contiguous.
struct Int8Matrix {
  static constexpr Index block = 64;  // elements per scale; the last block of a row may be shorter
  static constexpr Index largest = 127;

  std::int8_t* values = nullptr;
  float* scales = nullptr;
  Index rows = 0, columns = 0;

  static constexpr Index blocks(Index columns) { return (columns + block - 1) / block; }
  GYR_FUNCTION Index blocks() const { return (columns + block - 1) / block; }
  explicit operator bool() const { return values != nullptr; }
};

// Quantizes w into `to`, of the same shape. A scale is the largest magnitude of its block / 127, so that an element is
// off by at most half of that, 1/254 of the block's largest magnitude. A block that is not finite has a scale that is
// not finite.
template <class T>
void quantize(Device&, Matrix<const T> w, const Int8Matrix& to);

// y (R,N) = alpha x (R,K) w' + beta y. Few rows (gemm.hpp), except in double, read w once as int8, and a row of y
// depends only on the same row of x. For more rows, blocks of rows of w are dequantized to T in scratch memory. beta =
// 0 does not read y. Counted as "gemm_int8".
template <class T, class S>
void linear(Device&, Matrix<const T> x, const Int8Matrix& w /*(N,K)*/, Matrix<S> y, double alpha = 1, double beta = 0);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T, class S>
void few_rows_gemm(Device&, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta);
template <class T>
void quantize(Device&, Matrix<const T> w, const Int8Matrix& to);
// to (count, K) = rows [first, first + count) of w, dequantized to T.
template <class T>
void widen(Device&, const Int8Matrix& w, Index first, Tensor2<T> to);

}  // namespace backend

}  // namespace gyr
