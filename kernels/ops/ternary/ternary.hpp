// SPDX-License-Identifier: BSD-3-Clause
// Quantization of ternary linear layers (Ma et al., "The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits", 2024):
//   s_w = 1 / max(mean |W|, 1e-5),    Q = clamp(rint(W s_w), -1, 1),       W^ = Q / s_w
//   s_x = 127 / max(max |x|, 1e-5),   X = clamp(rint(x s_x), -128, 127),   x^ = X / s_x
//   y = (X Q') / (s_x s_w),   dx = dy W^,   dW = dy' x^   (straight-through gradients)
//   W (N,K) weight, x (R,K) input rows; s_w is a scale of each section of rows of W, s_x a scale of each row of x
// rint rounds ties to even. Q and X are the codes, W^ and x^ the dequantized values. Codes are stored as T, which holds them exactly, and
// X Q' is exact as long as 128 K < 2^24.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// Sections of consecutive rows of a matrix. Each section has one scale, and may lie on several ranks.
struct RowSections {
  static constexpr int most = 8;

  int count = 0;
  Index begin[most + 1] = {};  // first row of each section on this rank; after the last section: the number of rows
  double elements[most] = {};  // number of elements of each section on all ranks
  bool adds[most] = {};        // true: this rank adds its part to the sum; false: another rank holds the same part and adds it

  Index rows() const { return begin[count]; }
  GYR_FUNCTION int of(Index row) const {
    int s = 0;
    while (s + 1 < count && row >= begin[s + 1]) ++s;
    return s;
  }
};

// The formulas of one element. A value that is not a number stays one.
namespace ternary {

template <class A>
GYR_FUNCTION A clamped(A x, A low, A high) {
  return x < low ? low : x > high ? high : x;
}
template <class A>
GYR_FUNCTION A at_least_epsilon(A x) {
  const A least = A(1e-5);
  return x < least ? least : x;
}
template <class A>
GYR_FUNCTION A weight_scale(double sum, double elements) {
  return A(1) / at_least_epsilon(A(sum / elements));
}
template <class A>
GYR_FUNCTION A weight_code(A w, A scale) {
  return clamped(A(std::rint(w * scale)), A(-1), A(1));
}
template <class A>
GYR_FUNCTION A row_scale(A largest) {
  return A(127) / at_least_epsilon(largest);
}
template <class A>
GYR_FUNCTION A row_code(A x, A scale) {
  return clamped(A(std::rint(x * scale)), A(-128), A(127));
}

}  // namespace ternary

enum class Ternary { codes, values };  // form of a quantized matrix: Q and X, or W^ and x^

// sums(s) = sum of |w| over the rows of section s, in double and in a fixed order; 0 if another rank adds this part.
template <class T>
void magnitude_sums(Device&, Matrix<const T> w /*(N,K)*/, const RowSections&, Tensor1<double> sums /*(sections)*/);
// scales(s) = s_w of section s, from the sums over all ranks.
template <class A>
void weight_scales(Device&, const RowSections&, Tensor1<const double> sums, Tensor1<A> scales /*(sections)*/);
template <class T>
void quantize_weight(Device&, Matrix<const T> w /*(N,K)*/, const RowSections&, Tensor1<const Acc<T>> scales, Ternary form, Tensor2<T> to /*(N,K)*/);

// largest(r) = max |x(r, k)| over k.
template <class T>
void row_magnitudes(Device&, Matrix<const T> x /*(R,K)*/, Tensor1<Acc<T>> largest /*(R)*/);
template <class T>
void quantize_rows(Device&, Matrix<const T> x /*(R,K)*/, Tensor1<const Acc<T>> largest /*(R)*/, Ternary form, Tensor2<T> to /*(R,K)*/);

// y = alpha products / (s_x s_w) + beta y, with products = X Q'. beta = 0 does not read y.
template <class T>
void scale_products(Device&, Tensor2<const Acc<T>> products /*(R,N)*/, Tensor1<const Acc<T>> largest /*(R)*/, const RowSections&,
                    Tensor1<const Acc<T>> scales, double alpha, double beta, Matrix<T> y /*(R,N)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

// of_rows (N): scratch memory for the sums of the rows.
template <class T>
void magnitude_sums(Device&, Matrix<const T> w, const RowSections&, Tensor1<double> of_rows, Tensor1<double> sums);
template <class A>
void weight_scales(Device&, const RowSections&, Tensor1<const double> sums, Tensor1<A> scales);
template <class T>
void quantize_weight(Device&, Matrix<const T> w, const RowSections&, Tensor1<const Acc<T>> scales, Ternary form, Tensor2<T> to);
template <class T>
void row_magnitudes(Device&, Matrix<const T> x, Tensor1<Acc<T>> largest);
template <class T>
void quantize_rows(Device&, Matrix<const T> x, Tensor1<const Acc<T>> largest, Ternary form, Tensor2<T> to);
template <class T>
void scale_products(Device&, Tensor2<const Acc<T>> products, Tensor1<const Acc<T>> largest, const RowSections&, Tensor1<const Acc<T>> scales,
                    double alpha, double beta, Matrix<T> y);

}  // namespace backend

}  // namespace gyr
