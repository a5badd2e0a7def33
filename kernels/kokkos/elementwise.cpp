// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of elementwise operations. kernels/ops/elementwise.hpp has the formulas.
#include "kernels/ops/elementwise.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

namespace {

// Calls f(to, from) for all elements of y and x.
template <class S, class T, class F>
void for_pairs(const char* name, Device& dev, const Matrix<const S>& x, const Matrix<T>& y, const F& f) {
  const Index rows = y.rows, columns = y.columns;
  if (rows <= 1 || (x.stride == columns && y.stride == columns)) {
    const S* const from = x.data;
    T* const to = y.data;
    for_flat(
        name, dev, rows * columns, KOKKOS_LAMBDA(Index i) { f(to[i], from[i]); });
  } else {
    for_teams(
        name, dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
          const S* const from = x.row(r);
          T* const to = y.row(r);
          each(team, columns, [=](Index c) { f(to[c], from[c]); });
        });
  }
}

}  // namespace

template <class T>
void fill(Device& dev, Tensor1<T> x, double value) {
  T* const to = x.data();
  const T v = T(value);
  for_flat(
      "fill", dev, x.extent(0), KOKKOS_LAMBDA(Index i) { to[i] = v; });
}

template <class T>
void add(Device& dev, Matrix<const T> x, Matrix<T> y) {
  for_pairs(
      "add", dev, x, y, KOKKOS_LAMBDA(T & to, const T& from) { to = T(Acc<T>(to) + Acc<T>(from)); });
}

template <class T>
void multiply(Device& dev, Matrix<const T> a, Matrix<const T> b, Matrix<T> y) {
  using A = Acc<T>;
  for_teams(
      "multiply", dev, y.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const left = a.row(r), *const right = b.row(r);
        T* const to = y.row(r);
        each(team, y.columns, [=](Index c) { to[c] = T(A(left[c]) * A(right[c])); });
      });
}

template <class S, class T>
void convert(Device& dev, Matrix<const S> x, Matrix<T> y) {
  for_pairs(
      "convert", dev, x, y, KOKKOS_LAMBDA(T & to, const S& from) { to = T(from); });
}

template <class T>
void bias_scale(Device& dev, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y) {
  using A = Acc<T>;
  const A *const b = bias.data(), *const s = scale.data();
  for_teams(
      "bias_scale", dev, y.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        T* const to = y.row(r);
        if (b && s) each(team, y.columns, [=](Index c) { to[c] = T(s[c] * (A(to[c]) + b[c])); });
        else if (b) each(team, y.columns, [=](Index c) { to[c] = T(A(to[c]) + b[c]); });
        else each(team, y.columns, [=](Index c) { to[c] = T(s[c] * A(to[c])); });
      });
}

template <class T>
void add_bias(Device& dev, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y) {
  using A = Acc<T>;
  const A* const b = bias.data();
  const A k = A(scale);
  for_teams(
      "add_bias", dev, y.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        T* const to = y.row(r);
        each(team, y.columns, [=](Index c) { to[c] = T(A(to[c]) + k * b[c]); });
      });
}

template <class T>
void divide_rows(Device& dev, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y) {
  using A = Acc<T>;
  const Index columns = y.extent(1);
  for_teams(
      "divide_rows", dev, y.extent(0), KOKKOS_LAMBDA(const Team& team, Index r) {
        const A* const from = x.data() + r * columns;
        T* const to = y.data() + r * columns;
        const A count = n.data()[r], factor = count == 0 ? A(0) : A(1) / count;
        each(team, columns, [=](Index c) { to[c] = T(factor * from[c]); });
      });
}

template <class T>
void bias_backward(Device& dev, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias) {
  using A = Acc<T>;
  const Index blocks = ceil_div(dy.rows, block_rows);
  const auto partial = dev.scratch.tensor<A>(blocks, dy.columns);
  if (dev.dry_run()) return;
  for_teams(
      "bias_backward", dev, blocks, KOKKOS_LAMBDA(const Team& team, Index b) {
        A* const p = partial.data() + b * dy.columns;
        const Index first = b * block_rows, last = least(first + block_rows, dy.rows);
        each(team, dy.columns, [=](Index c) { p[c] = 0; });
        for (Index r = first; r < last; ++r) {
          const T* const from = dy.row(r);
          each(team, dy.columns, [=](Index c) { p[c] += A(from[c]); });
        }
      });
  add_blocks<A>("bias_backward", dev, partial, A(scale), dbias);
}

GYR_ALL_ELEMENTWISE
GYR_CONVERT(double, bf16) GYR_CONVERT(bf16, double)  // between models of different precision

}  // namespace gyr::backend
