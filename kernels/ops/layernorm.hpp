// SPDX-License-Identifier: BSD-3-Clause
// LayerNorm of each row: y = g (x - mean(x)) / sqrt(var(x) + eps) + b.   R rows (= B T), D hidden_size
#pragma once

#include "kernels/ops/rmsnorm.hpp"

namespace gyr {

// The variance is the biased one (sum of squares divided by D). y is rounded once.
template <class T>
void layernorm(Device&, Tensor2<const T> x /*(R,D)*/, Tensor1<const Acc<T>> g /*(D)*/, Tensor1<const Acc<T>> b /*(D), or empty: 0*/, double eps,
               Tensor2<T> y /*(R,D)*/, Tensor1<Acc<T>> mean /*(R)*/, Tensor1<Acc<T>> rstd /*(R)*/);

// With xh = (x - mean) rstd, u = g dy:   dx = rstd (u - mean(u) - xh mean(u xh)),   dg += sum over rows of dy xh,   db += sum over rows of dy
template <class T>
void layernorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx /*= or +=*/, Tensor1<Acc<T>> dg /*+=, or empty*/,
                        Tensor1<Acc<T>> db /*+=, or empty*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void layernorm(Device&, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd);
template <class T>
void layernorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db);  // allocates scratch memory

}  // namespace backend

}  // namespace gyr
