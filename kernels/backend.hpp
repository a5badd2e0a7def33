// SPDX-License-Identifier: BSD-3-Clause
// What a backend defines of kernels whose arguments have been checked and whose work has been announced (NAME.cpp for NAME.hpp does that): the
// same functions, with the same meaning. They run on no dry-run device; those that take scratch memory also count it there.
#pragma once

#include "kernels/adamw.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/swiglu.hpp"

namespace gyr::backend {

template <class T>
void fill(Device&, Tensor1<T> x, double value);
template <class T>
void add(Device&, Matrix<const T> x, Matrix<T> y);
template <class S, class T>
void convert(Device&, Matrix<const S> x, Matrix<T> y);
template <class T>
void bias_scale(Device&, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y);
template <class T>
void add_bias(Device&, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y);
template <class T>
void bias_backward(Device&, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias);  // takes scratch

template <class T>
void swiglu(Device&, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y);
template <class T>
void swiglu_backward(Device&, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up);

template <class T>
void rmsnorm(Device&, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd);
template <class T>
void rmsnorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add, Tensor2<T> dx,
                      Tensor1<Acc<T>> dg);  // takes scratch

template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w);

}  // namespace gyr::backend
