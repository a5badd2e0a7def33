// SPDX-License-Identifier: BSD-3-Clause
// QK norm: y = g x / rms(x) for each head separately, all heads with the same weights (Henry et al., "Query-Key
// Normalization for Transformers", 2020; used by Qwen3).
//   R rows, H heads, E head_dim
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

// rstd = 1 / sqrt(mean(x^2) + eps), y = (offset + g) * T(x rstd), as in rmsnorm. rstd has one column per head. y may be
// x's memory.
template <class T>
void head_norm(Device&, Matrix<const T> x /*(R,H E)*/, Tensor1<const Acc<T>> g /*(E)*/, double eps, Matrix<T> y /*(R,H E)*/,
               Matrix<Acc<T>> rstd /*(R,H)*/, double offset = 0);

// With xh = x rstd, u = (offset + g) dy:   dx = rstd (u - xh mean(u xh)),   dg += sum over rows and heads of dy xh. dx may be dy's memory.
template <class T>
void head_norm_backward(Device&, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg /*+=, or empty*/, double offset = 0);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void head_norm(Device&, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset);
template <class T>
void head_norm_backward(Device&, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset);  // this function allocates scratch memory

}  // namespace backend

}  // namespace gyr
