// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/elementwise.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr {

template <class T>
void fill(Device& dev, Tensor1<T> x, double value) {
  const Index n = x.extent(0);
  const auto run = dev.launch("fill", 0, double(sizeof(T)) * n);
  if (!run) return;
  T* const to = x.data();
  const T v = T(value);
  for_flat(
      "fill", dev, n, KOKKOS_LAMBDA(Index i) { to[i] = v; });
}

template <class T>
void add(Device& dev, Tensor1<const T> x, Tensor1<T> y) {
  const Index n = y.extent(0);
  ensure(Index(x.extent(0)) == n, "add of {} numbers to {}", x.extent(0), n);
  const auto run = dev.launch("add", n, 3.0 * sizeof(T) * n);
  if (!run) return;
  const T* const from = x.data();
  T* const to = y.data();
  for_flat(
      "add", dev, n, KOKKOS_LAMBDA(Index i) { to[i] = T(Acc<T>(to[i]) + Acc<T>(from[i])); });
}

template <class T>
void add(Device& dev, Matrix<const T> x, Matrix<T> y) {
  ensure(x.rows == y.rows && x.columns == y.columns, "add of ({},{}) to ({},{})", x.rows, x.columns, y.rows, y.columns);
  const auto run = dev.launch("add", double(x.rows) * x.columns, 3.0 * sizeof(T) * x.rows * x.columns);
  if (!run) return;
  for_teams(
      "add", dev, x.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T* const from = x.row(r);
        T* const to = y.row(r);
        each(team, x.columns, [=](Index c) { to[c] = T(Acc<T>(to[c]) + Acc<T>(from[c])); });
      });
}

template <class S, class T>
void convert(Device& dev, Matrix<const S> x, Matrix<T> y) {
  ensure(x.rows == y.rows && x.columns == y.columns, "convert of ({},{}) to ({},{})", x.rows, x.columns, y.rows, y.columns);
  const auto run = dev.launch("convert", 0, double(sizeof(S) + sizeof(T)) * x.rows * x.columns);
  if (!run) return;
  if (x.stride == x.columns && y.stride == y.columns) {
    const S* const from = x.data;
    T* const to = y.data;
    for_flat(
        "convert", dev, x.rows * x.columns, KOKKOS_LAMBDA(Index i) { to[i] = T(from[i]); });
  } else {
    for_teams(
        "convert", dev, x.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
          const S* const from = x.row(r);
          T* const to = y.row(r);
          each(team, x.columns, [=](Index c) { to[c] = T(from[c]); });
        });
  }
}

template <class T>
void bias_scale(Device& dev, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y) {
  using A = Acc<T>;
  const A *const b = bias.data(), *const s = scale.data();
  ensure((!b || Index(bias.extent(0)) == y.columns) && (!s || Index(scale.extent(0)) == y.columns),
         "bias of {} and scale of {} numbers for {} columns", bias.extent(0), scale.extent(0), y.columns);
  if (!b && !s) return;
  const auto run = dev.launch("bias_scale", double((b != nullptr) + (s != nullptr)) * y.rows * y.columns, 2.0 * sizeof(T) * y.rows * y.columns);
  if (!run) return;
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
  ensure(Index(bias.extent(0)) == y.columns, "bias of {} numbers for {} columns", bias.extent(0), y.columns);
  const auto run = dev.launch("add_bias", 2.0 * y.rows * y.columns, 2.0 * sizeof(T) * y.rows * y.columns);
  if (!run) return;
  const A k = A(scale);
  for_teams(
      "add_bias", dev, y.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        T* const to = y.row(r);
        each(team, y.columns, [=](Index c) { to[c] = T(A(to[c]) + k * b[c]); });
      });
}

template <class T>
void bias_backward(Device& dev, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias) {
  using A = Acc<T>;
  ensure(Index(dbias.extent(0)) == dy.columns, "bias gradient of {} numbers for {} columns", dbias.extent(0), dy.columns);
  const Workspace workspace(dev.scratch, "bias_backward");
  const Index blocks = ceil_div(dy.rows, block_rows);
  const auto partial = dev.scratch.tensor<A>(blocks, dy.columns);
  const auto run = dev.launch("bias_backward", double(dy.rows) * dy.columns, double(sizeof(T)) * dy.rows * dy.columns);
  if (!run) return;
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

template void fill<double>(Device&, Tensor1<double>, double);
template void fill<float>(Device&, Tensor1<float>, double);
template void fill<bf16>(Device&, Tensor1<bf16>, double);
template void add<double>(Device&, Tensor1<const double>, Tensor1<double>);
template void add<float>(Device&, Tensor1<const float>, Tensor1<float>);
template void add<bf16>(Device&, Tensor1<const bf16>, Tensor1<bf16>);
template void add<double>(Device&, Matrix<const double>, Matrix<double>);
template void add<float>(Device&, Matrix<const float>, Matrix<float>);
template void add<bf16>(Device&, Matrix<const bf16>, Matrix<bf16>);
template void convert<double, double>(Device&, Matrix<const double>, Matrix<double>);
template void convert<float, float>(Device&, Matrix<const float>, Matrix<float>);
template void convert<float, bf16>(Device&, Matrix<const float>, Matrix<bf16>);
template void convert<bf16, float>(Device&, Matrix<const bf16>, Matrix<float>);
template void convert<bf16, bf16>(Device&, Matrix<const bf16>, Matrix<bf16>);
template void bias_scale<double>(Device&, Tensor1<const double>, Tensor1<const double>, Matrix<double>);
template void bias_scale<float>(Device&, Tensor1<const float>, Tensor1<const float>, Matrix<float>);
template void bias_scale<bf16>(Device&, Tensor1<const float>, Tensor1<const float>, Matrix<bf16>);
template void add_bias<double>(Device&, Tensor1<const Acc<double>>, double, Matrix<double>);
template void bias_backward<double>(Device&, Matrix<const double>, double, Tensor1<double>);
template void add_bias<float>(Device&, Tensor1<const Acc<float>>, double, Matrix<float>);
template void bias_backward<float>(Device&, Matrix<const float>, double, Tensor1<float>);
template void add_bias<bf16>(Device&, Tensor1<const Acc<bf16>>, double, Matrix<bf16>);
template void bias_backward<bf16>(Device&, Matrix<const bf16>, double, Tensor1<float>);

}  // namespace gyr
