// SPDX-License-Identifier: BSD-3-Clause
// Elementwise operations that are not part of a GEMM.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

template <class T>
void fill(Device&, Tensor1<T> x, double value);
// y += x
template <class T>
void add(Device&, Tensor1<const T> x, Tensor1<T> y);
template <class T>
void add(Device&, Matrix<const T> x, Matrix<T> y);
// y = a b, element by element
template <class T>
void multiply(Device&, Matrix<const T> a, Matrix<const T> b, Matrix<T> y);
// y = x, converting S to T.
template <class S, class T>
void convert(Device&, Matrix<const S> x, Matrix<T> y);
// y(r, c) = scale(c) (y(r, c) + bias(c)); either of bias and scale may be empty.   (C) each
template <class T>
void bias_scale(Device&, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y);
// y(r, c) += scale * bias(c)
template <class T>
void add_bias(Device&, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y);
// y(r, c) = x(r, c) / n(r), or 0 where n(r) is 0
template <class T>
void divide_rows(Device&, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y);
// dbias(c) += scale * sum over rows of dy(r, c)
template <class T>
void bias_backward(Device&, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void fill(Device&, Tensor1<T> x, double value);
template <class T>
void add(Device&, Matrix<const T> x, Matrix<T> y);
template <class T>
void multiply(Device&, Matrix<const T> a, Matrix<const T> b, Matrix<T> y);
template <class S, class T>
void convert(Device&, Matrix<const S> x, Matrix<T> y);
template <class T>
void bias_scale(Device&, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y);
template <class T>
void add_bias(Device&, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y);
template <class T>
void divide_rows(Device&, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y);
template <class T>
void bias_backward(Device&, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias);  // this function allocates scratch memory

}  // namespace backend

}  // namespace gyr
