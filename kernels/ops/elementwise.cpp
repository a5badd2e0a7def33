// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/elementwise.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class T>
void fill(Device& dev, Tensor1<T> x, double value) {
  if (const auto run = dev.launch("fill", 0, double(sizeof(T)) * x.extent(0))) backend::fill<T>(dev, x, value);
}

template <class T>
void add(Device& dev, Tensor1<const T> x, Tensor1<T> y) {
  const Index from = x.extent(0), to = y.extent(0);
  add<T>(dev, Matrix<const T>(x.data(), 1, from, from), Matrix<T>(y.data(), 1, to, to));
}

template <class T>
void add(Device& dev, Matrix<const T> x, Matrix<T> y) {
  ensure(x.rows == y.rows && x.columns == y.columns, "add: x ({},{}) and y ({},{}) have different shapes", x.rows, x.columns, y.rows, y.columns);
  const double n = double(x.rows) * x.columns;
  if (const auto run = dev.launch("add", n, 3.0 * sizeof(T) * n)) backend::add<T>(dev, x, y);
}

template <class T>
void multiply(Device& dev, Matrix<const T> a, Matrix<const T> b, Matrix<T> y) {
  ensure(a.rows == y.rows && a.columns == y.columns && b.rows == y.rows && b.columns == y.columns,
         "multiply: a ({},{}), b ({},{}) and y ({},{}) have different shapes", a.rows, a.columns, b.rows, b.columns, y.rows, y.columns);
  const double n = double(y.rows) * y.columns;
  if (const auto run = dev.launch("multiply", n, 3.0 * sizeof(T) * n)) backend::multiply<T>(dev, a, b, y);
}

template <class S, class T>
void convert(Device& dev, Matrix<const S> x, Matrix<T> y) {
  ensure(x.rows == y.rows && x.columns == y.columns, "convert: x ({},{}) and y ({},{}) have different shapes", x.rows, x.columns, y.rows, y.columns);
  if (const auto run = dev.launch("convert", 0, double(sizeof(S) + sizeof(T)) * x.rows * x.columns)) backend::convert<S, T>(dev, x, y);
}

template <class T>
void bias_scale(Device& dev, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y) {
  const bool b = bias.data(), s = scale.data();
  ensure((!b || Index(bias.extent(0)) == y.columns) && (!s || Index(scale.extent(0)) == y.columns),
         "bias_scale: {} bias values and {} scale values for {} columns", bias.extent(0), scale.extent(0), y.columns);
  if (!b && !s) return;
  if (const auto run = dev.launch("bias_scale", double(b + s) * y.rows * y.columns, 2.0 * sizeof(T) * y.rows * y.columns))
    backend::bias_scale<T>(dev, bias, scale, y);
}

template <class T>
void add_bias(Device& dev, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y) {
  ensure(Index(bias.extent(0)) == y.columns, "add_bias: {} bias values for {} columns", bias.extent(0), y.columns);
  if (const auto run = dev.launch("add_bias", 2.0 * y.rows * y.columns, 2.0 * sizeof(T) * y.rows * y.columns))
    backend::add_bias<T>(dev, bias, scale, y);
}

template <class T>
void divide_rows(Device& dev, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y) {
  const Index rows = y.extent(0), columns = y.extent(1);
  ensure(Index(x.extent(0)) == rows && Index(x.extent(1)) == columns && Index(n.extent(0)) == rows,
         "divide_rows: x ({},{}) and {} divisors do not fit y ({},{})", x.extent(0), x.extent(1), n.extent(0), rows, columns);
  if (const auto run = dev.launch("divide_rows", double(rows) * columns, double(sizeof(Acc<T>) + sizeof(T)) * rows * columns))
    backend::divide_rows<T>(dev, x, n, y);
}

template <class T>
void bias_backward(Device& dev, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias) {
  ensure(Index(dbias.extent(0)) == dy.columns, "bias_backward: {} bias gradients for {} columns", dbias.extent(0), dy.columns);
  const Workspace workspace(dev.scratch, "bias_backward");
  const auto run = dev.launch("bias_backward", double(dy.rows) * dy.columns, double(sizeof(T)) * dy.rows * dy.columns);
  backend::bias_backward<T>(dev, dy, scale, dbias);
}

template void add<double>(Device&, Tensor1<const double>, Tensor1<double>);
template void add<float>(Device&, Tensor1<const float>, Tensor1<float>);
template void add<bf16>(Device&, Tensor1<const bf16>, Tensor1<bf16>);
GYR_ALL_ELEMENTWISE
GYR_CONVERT(double, bf16) GYR_CONVERT(bf16, double)  // between models of different precision

}  // namespace gyr
