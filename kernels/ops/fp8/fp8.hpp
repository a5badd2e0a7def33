// SPDX-License-Identifier: BSD-3-Clause
// Rounding of matrices to FP8 with one scale per block (codes.hpp has the formats and the scale):
//   x^ = decode(encode(x 2^e)) 2^-e,   2^e: scale of the block of x, from its largest magnitude
// A GEMM of two rounded matrices is the FP8 GEMM of their codes, with the scales applied and the sums accumulated in float. Scales are powers of
// two, and FP8 values have at most four significant bits, so that every type T holds x^ exactly.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/ops/fp8/codes.hpp"

namespace gyr {

// Extents of a block. Blocks begin at the first row and column of a matrix, and the last ones may be smaller.
struct Fp8Block {
  Index rows = 1, columns = 1;

  Index rows_of_blocks(Index matrix_rows) const { return (matrix_rows + rows - 1) / rows; }
  Index columns_of_blocks(Index matrix_columns) const { return (matrix_columns + columns - 1) / columns; }
};

// largest(i, j) = largest |x| of block (i, j), as a float. A NaN does not count.
template <class T>
void block_maxima(Device&, Matrix<const T> x /*(R,C)*/, const Fp8Block&, Tensor2<float> largest /*(blocks of rows, blocks of columns)*/);
// largest(0) = largest |x| of the matrix.
template <class T>
void matrix_maximum(Device&, Matrix<const T> x /*(R,C)*/, Tensor1<float> largest /*(1)*/);

enum class Fp8Form { codes, values };  // form of a rounded matrix: the codes as whole numbers, or x^

// largest: of each block, or (1,1) for one scale of the matrix.
template <class T>
void round_to_fp8(Device&, Matrix<const T> x /*(R,C)*/, fp8::Format, const Fp8Block&, Tensor2<const float> largest, Fp8Form, Tensor2<T> to /*(R,C)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void block_maxima(Device&, Matrix<const T> x, const Fp8Block&, Tensor2<float> largest);
template <class T>
void round_to_fp8(Device&, Matrix<const T> x, fp8::Format, const Fp8Block&, Tensor2<const float> largest, Fp8Form, Tensor2<T> to);

}  // namespace backend

#define GYR_FP8(T)                                                                          \
  template void block_maxima<T>(Device&, Matrix<const T>, const Fp8Block&, Tensor2<float>); \
  template void round_to_fp8<T>(Device&, Matrix<const T>, fp8::Format, const Fp8Block&, Tensor2<const float>, Fp8Form, Tensor2<T>);

}  // namespace gyr
