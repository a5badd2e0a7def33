// SPDX-License-Identifier: BSD-3-Clause
// RMSNorm of each row: y = g x / rms(x).   R rows (= B T), D hidden_size
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

enum class Add { no, yes };  // Add::yes: the result is added to the output; Add::no: it is written

// rstd = 1 / sqrt(mean(x^2) + eps), y = (offset + g) * T(x rstd): rounded to T before the weight, as in Hugging Face.
template <class T>
void rmsnorm(Device&, Tensor2<const T> x /*(R,D)*/, Tensor1<const Acc<T>> g /*(D)*/, double eps, Tensor2<T> y /*(R,D)*/, Tensor1<Acc<T>> rstd /*(R)*/,
             double offset = 0);

// With xh = x rstd, u = (offset + g) dy:   dx = rstd (u - xh mean(u xh)),   dg += sum over rows of dy xh
template <class T>
void rmsnorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add add,
                      Tensor2<T> dx /*= or +=*/, Tensor1<Acc<T>> dg /*+=, or empty*/, double offset = 0);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void rmsnorm(Device&, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset);
template <class T>
void rmsnorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add, Tensor2<T> dx,
                      Tensor1<Acc<T>> dg, double offset);  // this function allocates scratch memory

}  // namespace backend

}  // namespace gyr
