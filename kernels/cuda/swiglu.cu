// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/instances.hpp"
#include "kernels/cuda/rows.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL swiglu_kernel(Global<const T> gate_up, Acc<T> m, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index f) {
      const auto gate = gate_up.template load_pack<N>(r, f), up = gate_up.template load_pack<N>(r, y.columns() + f);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(A(up.at[i]) * silu(m * A(gate.at[i])));
      y.template store_pack<N>(r, f, out);
    });
  });
}

template <class T, int N>
GYR_KERNEL swiglu_backward_kernel(Global<const T> dy, Global<const T> gate_up, Acc<T> m, Global<T> dgate_up) {
  using A = Acc<T>;
  const Index width = dy.columns();
  each_row(dy.rows(), [&](Index r) {
    each_column<N>(width, [&](Index f) {
      const auto gate = gate_up.template load_pack<N>(r, f), up = gate_up.template load_pack<N>(r, width + f), dout = dy.template load_pack<N>(r, f);
      Pack<T, N> dgate, dup;
      for (int i = 0; i < N; ++i) {
        const A s = m * A(gate.at[i]), sig = sigmoid(s), d = A(dout.at[i]);
        dup.at[i] = T(d * s * sig);
        dgate.at[i] = T(d * A(up.at[i]) * m * sig * (1 + s * (1 - sig)));
      }
      dgate_up.template store_pack<N>(r, f, dgate);
      dgate_up.template store_pack<N>(r, width + f, dup);
    });
  });
}

}  // namespace

template <class T>
void swiglu(Device& dev, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  const Global<const T> in(gate_up);
  const Global<T> out(y);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "swiglu", grid_of_rows(out), swiglu_kernel<T, n>, in, Acc<T>(multiplier), out);
      },
      in, out);
}

template <class T>
void swiglu_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  const Global<const T> dout(dy), in(gate_up);
  const Global<T> din(dgate_up);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "swiglu_backward", grid_of_rows(dout), swiglu_backward_kernel<T, n>, dout, in, Acc<T>(multiplier), din);
      },
      dout, in, din);
}

GYR_SCALARS(GYR_SWIGLU)

}  // namespace gyr::backend
