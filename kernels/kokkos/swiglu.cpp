// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/instances.hpp"

#include "kernels/kokkos/rows.hpp"
#include "kernels/math.hpp"

namespace gyr::backend {

template <class T>
void swiglu(Device& dev, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  using A = Acc<T>;
  const Index rows = y.extent(0), width = y.extent(1);
  const A m = A(multiplier);
  for_teams(
      "swiglu", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const gate = gate_up.data() + 2 * r * width, *const up = gate + width;
        T* const to = y.data() + r * width;
        each(team, width, [=](Index f) { to[f] = T(A(up[f]) * silu(m * A(gate[f]))); });
      });
}

template <class T>
void swiglu_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  using A = Acc<T>;
  const Index rows = dy.extent(0), width = dy.extent(1);
  const A m = A(multiplier);
  for_teams(
      "swiglu_backward", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const gate = gate_up.data() + 2 * r * width, *const up = gate + width, *const dout = dy.data() + r * width;
        T *const dgate = dgate_up.data() + 2 * r * width, *const dup = dgate + width;
        each(team, width, [=](Index f) {
          const A s = m * A(gate[f]), sig = sigmoid(s), d = A(dout[f]);
          dup[f] = T(d * s * sig);
          dgate[f] = T(d * A(up[f]) * m * sig * (1 + s * (1 - sig)));
        });
      });
}

GYR_SCALARS(GYR_SWIGLU)

}  // namespace gyr::backend
