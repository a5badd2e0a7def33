// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL layernorm_kernel(Global<const T> x, Global<const Acc<T>> g, Global<const Acc<T>> b, double eps, Global<T> y, Global<Acc<T>> mean,
                            Global<Acc<T>> rstd) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    A total = 0, squares = 0;
    each_column<N>(x.columns(), [&](Index c) {
      const auto v = x.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) total += A(v.at[i]);
    });
    const A centre = warp_sum(total) / A(x.columns());
    each_column<N>(x.columns(), [&](Index c) {
      const auto v = x.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) squares += (A(v.at[i]) - centre) * (A(v.at[i]) - centre);
    });
    const A k = A(1 / std::sqrt(double(warp_sum(squares)) / double(x.columns()) + eps));
    if (lane() == 0) mean.store(r, centre), rstd.store(r, k);
    each_column<N>(x.columns(), [&](Index c) {
      const auto v = x.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      Pack<A, N> bias = {};
      if (b) bias = b.template load_pack<N>(0, c);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(weight.at[i] * ((A(v.at[i]) - centre) * k) + bias.at[i]);
      y.template store_pack<N>(r, c, out);
    });
  });
}

template <class T, int N>
GYR_KERNEL layernorm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Global<const Acc<T>> mean,
                                     Global<const Acc<T>> rstd, bool adds, Global<T> dx) {
  using A = Acc<T>;
  each_row(x.rows(), [&](Index r) {
    const A centre = mean.load(r), k = rstd.load(r);
    A total = 0, product = 0;
    each_column<N>(x.columns(), [&](Index c) {
      const auto in = x.template load_pack<N>(r, c), dout = dy.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      for (int i = 0; i < N; ++i) {
        const A u = weight.at[i] * A(dout.at[i]);
        total += u, product += u * ((A(in.at[i]) - centre) * k);
      }
    });
    const A level = warp_sum(total) / A(x.columns()), along = warp_sum(product) / A(x.columns());
    each_column<N>(x.columns(), [&](Index c) {
      const auto in = x.template load_pack<N>(r, c), dout = dy.template load_pack<N>(r, c);
      const auto weight = g.template load_pack<N>(0, c);
      Pack<T, N> din = {};
      if (adds) din = dx.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) {
        const A v = k * (weight.at[i] * A(dout.at[i]) - level - (A(in.at[i]) - centre) * k * along);
        din.at[i] = T(adds ? A(din.at[i]) + v : v);
      }
      dx.template store_pack<N>(r, c, din);
    });
  });
}

// dy (x - mean) / deviation of x, whose sum over rows is the gradient of the weights.
template <class T, int N>
struct WeightGradient {
  Global<const T> dy, x;
  Global<const Acc<T>> mean, rstd;
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    using A = Acc<T>;
    const A centre = mean.load(r), k = rstd.load(r);
    const auto dout = dy.template load_pack<N>(r, c), in = x.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) sum.at[i] += A(dout.at[i]) * ((A(in.at[i]) - centre) * k);
  }
};

template <class T, int N>
struct BiasGradient {
  Global<const T> dy;
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    const auto dout = dy.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) sum.at[i] += Acc<T>(dout.at[i]);
  }
};

}  // namespace

template <class T>
void layernorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd) {
  const Global<const T> in(x);
  const Global<const Acc<T>> weight(g), bias(b);
  const Global<T> out(y);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "layernorm", grid_of_rows(in), layernorm_kernel<T, n>, in, weight, bias, eps, out, mean, rstd);
      },
      in, weight, bias, out);
}

// dx may be dy's memory: what the weights need of it comes first.
template <class T>
void layernorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1);
  const auto partial = dev.scratch.tensor<A>(ceil_div(rows, block_rows), width);
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), centre(mean), factor(rstd);
  const Global<T> din(dx);
  with_packs<T>(
      [&](auto n) {
        if (dg.data()) add_column_sums<n>(dev, "layernorm_backward", WeightGradient<T, n>{dout, in, centre, factor}, rows, partial, A(1), dg);
        if (db.data()) add_column_sums<n>(dev, "layernorm_backward", BiasGradient<T, n>{dout}, rows, partial, A(1), db);
        launch(dev, "layernorm_backward", grid_of_rows(in), layernorm_backward_kernel<T, n>, dout, in, weight, centre, factor, add == Add::yes, din);
      },
      dout, in, weight, din, Global<A>(partial));
}

GYR_SCALARS(GYR_LAYERNORM)

}  // namespace gyr::backend
