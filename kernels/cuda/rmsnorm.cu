// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/instances.hpp"
#include "kernels/cuda/rows.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL rmsnorm_kernel(Global<const T> x, Global<const Acc<T>> g, Acc<T> base, double eps, Global<T> y, Global<Acc<T>> rstd) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    A squares = 0;
    each_column<N>(x.columns(), [&](Index c) {
      const auto v = x.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) squares += A(v.at[i]) * A(v.at[i]);
    });
    const A k = A(1 / std::sqrt(double(warp_sum(squares)) / double(x.columns()) + eps));
    if (lane() == 0) rstd.store(r, k);
    each_column<N>(x.columns(), [&](Index c) {
      const auto v = x.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T((base + weight.at[i]) * A(T(A(v.at[i]) * k)));
      y.template store_pack<N>(r, c, out);
    });
  });
}

template <class T, int N>
GYR_KERNEL rmsnorm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Global<const Acc<T>> rstd,
                                   bool adds, Global<T> dx) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    const A k = rstd.load(r);
    A product = 0;
    each_column<N>(x.columns(), [&](Index c) {
      const auto in = x.template load_pack<N>(r, c), dout = dy.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      for (int i = 0; i < N; ++i) product += (base + weight.at[i]) * A(dout.at[i]) * A(in.at[i]);
    });
    const A mean = warp_sum(product) * k / A(x.columns());
    each_column<N>(x.columns(), [&](Index c) {
      const auto in = x.template load_pack<N>(r, c), dout = dy.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      Pack<T, N> din = {};
      if (adds) din = dx.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) {
        const A v = k * ((base + weight.at[i]) * A(dout.at[i]) - A(in.at[i]) * k * mean);
        din.at[i] = T(adds ? A(din.at[i]) + v : v);
      }
      dx.template store_pack<N>(r, c, din);
    });
  });
}

// dy x / norm of x, whose sum over rows is the gradient of the weights.
template <class T, int N>
struct WeightGradient {
  Global<const T> dy, x;
  Global<const Acc<T>> rstd;
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    using A = Acc<T>;
    const A k = rstd.load(r);
    const auto dout = dy.template load_pack<N>(r, c), in = x.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) sum.at[i] += A(dout.at[i]) * (A(in.at[i]) * k);
  }
};

}  // namespace

template <class T>
void rmsnorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset) {
  const Global<const T> in(x);
  const Global<const Acc<T>> weight(g);
  const Global<T> out(y);
  with_packs<T>([&](auto n) { launch(dev, "rmsnorm", grid_of_rows(in), rmsnorm_kernel<T, n>, in, weight, Acc<T>(offset), eps, out, rstd); }, in,
                weight, out);
}

// dx may be dy's memory: what the weights need of it comes first.
template <class T>
void rmsnorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add add,
                      Tensor2<T> dx, Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  const auto partial = dev.scratch.tensor<A>(ceil_div(rows, block_rows), width);
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), factor(rstd);
  const Global<T> din(dx);
  with_packs<T>(
      [&](auto n) {
        if (dg.data()) add_column_sums<n>(dev, "rmsnorm_backward", WeightGradient<T, n>{dout, in, factor}, rows, partial, A(1), dg);
        launch(dev, "rmsnorm_backward", grid_of_rows(in), rmsnorm_backward_kernel<T, n>, dout, in, weight, A(offset), factor, add == Add::yes, din);
      },
      dout, in, weight, din, Global<A>(partial));
}

GYR_SCALARS(GYR_RMSNORM)

}  // namespace gyr::backend
