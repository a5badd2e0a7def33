// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of activations, gated (GLU) and plain, and of their gradients. kernels/ops/activation.hpp has the formulas.
#include "kernels/ops/activation_math.hpp"
#include "kernels/ops/activation.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <Activation a, class T, int N>
GYR_KERNEL glu_kernel(Global<const T> gate_up, Acc<T> m, Global<T> y) {
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index f) {
      const auto gate = gate_up.template load_values<N>(r, f), up = gate_up.template load_values<N>(r, y.columns() + f);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(up_factor<a>(up.at[i]) * activation_at<a>(m * gate.at[i]));
      y.template store_pack<N>(r, f, out);
    });
  });
}

template <Activation a, class T, int N>
GYR_KERNEL glu_backward_kernel(Global<const T> dy, Global<const T> gate_up, Acc<T> m, Global<T> dgate_up) {
  using A = Acc<T>;
  const Index width = dy.columns();
  each_row(dy.rows(), [&](Index r) {
    each_column<N>(width, [&](Index f) {
      const auto gate = gate_up.template load_values<N>(r, f), up = gate_up.template load_values<N>(r, width + f),
                 dout = dy.template load_values<N>(r, f);
      Pack<T, N> dgate, dup;
      for (int i = 0; i < N; ++i) {
        const A s = m * gate.at[i], d = dout.at[i];
        dup.at[i] = T(d * up_factor_slope<a>(up.at[i]) * activation_at<a>(s));
        dgate.at[i] = T(d * up_factor<a>(up.at[i]) * m * activation_slope<a>(s));
      }
      dgate_up.template store_pack<N>(r, f, dgate);
      dgate_up.template store_pack<N>(r, width + f, dup);
    });
  });
}

template <Activation a, class T, int N>
GYR_KERNEL activate_kernel(Global<const T> x, Acc<T> m, Global<T> y) {
  each_pack<N>(y, [&](Index r, Index c) {
    const auto in = x.template load_values<N>(r, c);
    Pack<T, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = T(activation_at<a>(m * in.at[i]));
    y.template store_pack<N>(r, c, v);
  });
}

template <Activation a, class T, int N>
GYR_KERNEL activate_backward_kernel(Global<const T> dy, Global<const T> x, Acc<T> m, Global<T> dx) {
  each_pack<N>(dx, [&](Index r, Index c) {
    const auto in = x.template load_values<N>(r, c), dout = dy.template load_values<N>(r, c);
    Pack<T, N> v;
    for (int i = 0; i < N; ++i) v.at[i] = T(dout.at[i] * m * activation_slope<a>(m * in.at[i]));
    dx.template store_pack<N>(r, c, v);
  });
}

}  // namespace

template <class T>
void glu(Device& dev, Activation a, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y) {
  const Global<const T> in(gate_up);
  const Global<T> out(y);
  const Acc<T> m(multiplier);
  with_activation(
      a, [&](auto which) { with_packs<T>([&](auto n) { launch(dev, "glu", grid_of_rows(out), glu_kernel<which(), T, n>, in, m, out); }, in, out); });
}

template <class T>
void glu_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up) {
  const Global<const T> dout(dy), in(gate_up);
  const Global<T> din(dgate_up);
  const Acc<T> m(multiplier);
  with_activation(a, [&](auto which) {
    with_packs<T>([&](auto n) { launch(dev, "glu_backward", grid_of_rows(dout), glu_backward_kernel<which(), T, n>, dout, in, m, din); }, dout, in,
                  din);
  });
}

template <class T>
void activate(Device& dev, Activation a, Tensor2<const T> x, double multiplier, Tensor2<T> y) {
  const Global<const T> in(x);
  const Global<T> out(y);
  const Acc<T> m(multiplier);
  with_activation(a, [&](auto which) {
    with_packs<T>([&](auto n) { launch(dev, "activate", grid_of<n>(out), activate_kernel<which(), T, n>, in, m, out); }, in, out);
  });
}

template <class T>
void activate_backward(Device& dev, Activation a, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx) {
  const Global<const T> dout(dy), in(x);
  const Global<T> din(dx);
  const Acc<T> m(multiplier);
  with_activation(a, [&](auto which) {
    with_packs<T>([&](auto n) { launch(dev, "activate_backward", grid_of<n>(din), activate_backward_kernel<which(), T, n>, dout, in, m, din); }, dout,
                  in, din);
  });
}

GYR_SCALARS(GYR_ACTIVATION)

}  // namespace gyr::backend
