// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of elementwise operations. kernels/ops/elementwise.hpp has the formulas.
#include "kernels/ops/elementwise.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/cuda/machine/launch.hpp"
#include "kernels/cuda/rowwise/rows.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL fill_kernel(Global<T> x, T value) {
  Pack<T, N> all;
  for (int i = 0; i < N; ++i) all.at[i] = value;
  each_pack<N>(x, [&](Index r, Index c) { x.template store_pack<N>(r, c, all); });
}

template <class T, int N>
GYR_KERNEL add_kernel(Global<const T> x, Global<T> y) {
  each_pack<N>(y, [&](Index r, Index c) {
    const auto more = x.template load_pack<N>(r, c);
    auto sum = y.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) sum.at[i] = T(Acc<T>(sum.at[i]) + Acc<T>(more.at[i]));
    y.template store_pack<N>(r, c, sum);
  });
}

template <class T, int N>
GYR_KERNEL multiply_kernel(Global<const T> a, Global<const T> b, Global<T> y) {
  each_pack<N>(y, [&](Index r, Index c) {
    const auto left = a.template load_pack<N>(r, c), right = b.template load_pack<N>(r, c);
    Pack<T, N> out;
    for (int i = 0; i < N; ++i) out.at[i] = T(Acc<T>(left.at[i]) * Acc<T>(right.at[i]));
    y.template store_pack<N>(r, c, out);
  });
}

template <class S, class T, int N>
GYR_KERNEL convert_kernel(Global<const S> x, Global<T> y) {
  each_pack<N>(y, [&](Index r, Index c) {
    const auto from = x.template load_pack<N>(r, c);
    Pack<T, N> to;
    for (int i = 0; i < N; ++i) to.at[i] = T(from.at[i]);
    y.template store_pack<N>(r, c, to);
  });
}

// y = (y + k bias) scale, where bias and scale may be empty.
template <class T, int N>
GYR_KERNEL bias_scale_kernel(Global<const Acc<T>> bias, Acc<T> k, Global<const Acc<T>> scale, Global<T> y) {
  using A = Acc<T>;
  each_pack<N>(y, [&](Index r, Index c) {
    auto to = y.template load_pack<N>(r, c);
    Pack<A, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = A(to.at[i]);
    if (bias) {
      const auto b = bias.template load_pack<N>(0, c);
      for (int i = 0; i < N; ++i) v.at[i] += k * b.at[i];
    }
    if (scale) {
      const auto s = scale.template load_pack<N>(0, c);
      for (int i = 0; i < N; ++i) v.at[i] *= s.at[i];
    }
    for (int i = 0; i < N; ++i) to.at[i] = T(v.at[i]);
    y.template store_pack<N>(r, c, to);
  });
}

template <class T, int N>
GYR_KERNEL divide_rows_kernel(Global<const Acc<T>> x, Global<const Acc<T>> n, Global<T> y) {
  using A = Acc<T>;
  each_pack<N>(y, [&](Index r, Index c) {
    const A count = n.load(r), factor = count == 0 ? A(0) : A(1) / count;
    const auto from = x.template load_pack<N>(r, c);
    Pack<T, N> to;
    for (int i = 0; i < N; ++i) to.at[i] = T(factor * from.at[i]);
    y.template store_pack<N>(r, c, to);
  });
}

// Views a contiguous matrix as a single row.
template <class T>
Matrix<T> run_of(const Matrix<T>& x) {
  return x.stride == x.columns ? Matrix<T>(x.data, 1, x.rows * x.columns, x.rows * x.columns) : x;
}
template <class S, class T>
bool are_runs(const Matrix<S>& x, const Matrix<T>& y) {
  return x.stride == x.columns && y.stride == y.columns;
}

template <class T>
void scale_columns(const char* name, Device& dev, Global<const Acc<T>> bias, double k, Global<const Acc<T>> scale, Global<T> y) {
  with_packs<T>([&](auto n) { launch(dev, name, grid_of<n>(y), bias_scale_kernel<T, n>, bias, Acc<T>(k), scale, y); }, bias, scale, y);
}

template <class T, int N>
struct Columns {
  Global<const T> x;
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    const auto more = x.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) sum.at[i] += Acc<T>(more.at[i]);
  }
};

}  // namespace

template <class T>
void fill(Device& dev, Tensor1<T> x, double value) {
  const Global<T> all(x);
  with_packs<T>([&](auto n) { launch(dev, "fill", grid_of<n>(all), fill_kernel<T, n>, all, T(value)); }, all);
}

template <class T>
void add(Device& dev, Matrix<const T> x, Matrix<T> y) {
  if (x.rows > 1 && are_runs(x, y)) return backend::add<T>(dev, run_of(x), run_of(y));
  const Global<const T> from(x);
  const Global<T> to(y);
  with_packs<T>([&](auto n) { launch(dev, "add", grid_of<n>(to), add_kernel<T, n>, from, to); }, from, to);
}

template <class T>
void multiply(Device& dev, Matrix<const T> a, Matrix<const T> b, Matrix<T> y) {
  const Global<const T> left(a), right(b);
  const Global<T> to(y);
  with_packs<T>([&](auto n) { launch(dev, "multiply", grid_of<n>(to), multiply_kernel<T, n>, left, right, to); }, left, right, to);
}

template <class S, class T>
void convert(Device& dev, Matrix<const S> x, Matrix<T> y) {
  if (x.rows > 1 && are_runs(x, y)) return backend::convert<S, T>(dev, run_of(x), run_of(y));
  const Global<const S> from(x);
  const Global<T> to(y);
  with_packs<T>([&](auto n) { launch(dev, "convert", grid_of<n>(to), convert_kernel<S, T, n>, from, to); }, from, to);
}

template <class T>
void bias_scale(Device& dev, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y) {
  scale_columns<T>("bias_scale", dev, bias, 1, scale, y);
}

template <class T>
void add_bias(Device& dev, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y) {
  scale_columns<T>("add_bias", dev, bias, scale, {}, y);
}

template <class T>
void divide_rows(Device& dev, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y) {
  const Global<const Acc<T>> from(x), counts(n);
  const Global<T> to(y);
  with_packs<T>([&](auto k) { launch(dev, "divide_rows", grid_of<k>(to), divide_rows_kernel<T, k>, from, counts, to); }, from, to);
}

template <class T>
void bias_backward(Device& dev, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias) {
  using A = Acc<T>;
  const auto partial = dev.scratch.tensor<A>(ceil_div(dy.rows, block_rows), dy.columns);
  if (dev.dry_run()) return;
  with_packs<T>(
      [&](auto n) {
        add_column_sums<n>(dev, "bias_backward", Columns<T, n>{dy}, dy.rows, partial, A(scale), dbias);
      },
      Global<const T>(dy), Global<A>(partial));
}

GYR_ALL_ELEMENTWISE
GYR_CONVERT(double, bf16) GYR_CONVERT(bf16, double)  // between models of different precision

}  // namespace gyr::backend
