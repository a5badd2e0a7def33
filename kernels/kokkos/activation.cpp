// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of activations, gated (GLU) and plain, and of their gradients. kernels/ops/activation.hpp has the
// formulas.
#include "kernels/ops/activation.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/activation_math.hpp"

namespace gyr::backend {

namespace {

template <Activation a, class T>
void glu(Device& dev, Tensor2<const T> gate_up, Acc<T> m, Tensor2<T> y) {
  using A = Acc<T>;
  const Index rows = y.extent(0), width = y.extent(1);
  for_teams(
      "glu", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const gate = gate_up.data() + 2 * r * width, *const up = gate + width;
        T* const to = y.data() + r * width;
        each(team, width, [=](Index f) { to[f] = T(up_factor<a>(A(up[f])) * activation_at<a>(m * A(gate[f]))); });
      });
}

template <Activation a, class T>
void glu_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> gate_up, Acc<T> m, Tensor2<T> dgate_up) {
  using A = Acc<T>;
  const Index rows = dy.extent(0), width = dy.extent(1);
  for_teams(
      "glu_backward", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const gate = gate_up.data() + 2 * r * width, *const up = gate + width, *const dout = dy.data() + r * width;
        T *const dgate = dgate_up.data() + 2 * r * width, *const dup = dgate + width;
        each(team, width, [=](Index f) {
          const A s = m * A(gate[f]), d = A(dout[f]);
          dup[f] = T(d * up_factor_slope<a>(A(up[f])) * activation_at<a>(s));
          dgate[f] = T(d * up_factor<a>(A(up[f])) * m * activation_slope<a>(s));
        });
      });
}

template <Activation a, class T>
void activate(Device& dev, Tensor2<const T> x, Acc<T> m, Tensor2<T> y) {
  using A = Acc<T>;
  const T* const from = x.data();
  T* const to = y.data();
  for_flat(
      "activate", dev, y.size(), KOKKOS_LAMBDA(Index i) { to[i] = T(activation_at<a>(m * A(from[i]))); });
}

template <Activation a, class T>
void activate_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Acc<T> m, Tensor2<T> dx) {
  using A = Acc<T>;
  const T *const from = x.data(), *const dout = dy.data();
  T* const to = dx.data();
  for_flat(
      "activate_backward", dev, dx.size(), KOKKOS_LAMBDA(Index i) { to[i] = T(A(dout[i]) * m * activation_slope<a>(m * A(from[i]))); });
}

}  // namespace

template <class T>
void glu(Device& dev, Activation a, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  with_activation(a, [&](auto which) { glu<which(), T>(dev, gate_up, Acc<T>(multiplier), y); });
}
template <class T>
void glu_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  with_activation(a, [&](auto which) { glu_backward<which(), T>(dev, dy, gate_up, Acc<T>(multiplier), dgate_up); });
}
template <class T>
void activate(Device& dev, Activation a, Tensor2<const T> x, double multiplier, Tensor2<T> y) {
  with_activation(a, [&](auto which) { activate<which(), T>(dev, x, Acc<T>(multiplier), y); });
}
template <class T>
void activate_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx) {
  with_activation(a, [&](auto which) { activate_backward<which(), T>(dev, dy, x, Acc<T>(multiplier), dx); });
}

GYR_SCALARS(GYR_ACTIVATION)

}  // namespace gyr::backend
