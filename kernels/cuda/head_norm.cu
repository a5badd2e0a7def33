// SPDX-License-Identifier: BSD-3-Clause
// A warp for a head of a row: heads are numbered row by row.
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

Grid grid_of_heads(Index heads) { return {std::min(ceil_div(heads, Index(usual_warps)), most_blocks), usual_threads}; }

template <class T, int N>
GYR_KERNEL head_norm_kernel(Global<const T> x, Global<const Acc<T>> g, Acc<T> base, double eps, Global<T> y, Global<Acc<T>> rstd) {
  using A = Acc<T>;
  const Index heads = rstd.columns(), width = g.columns();
  each_row(x.rows() * heads, [&](Index i) {
    const Index r = i / heads, first = i % heads * width;
    A squares = 0;
    each_column<N>(width, [&](Index c) {
      const auto v = x.template load_pack<N>(r, first + c);
      for (int k = 0; k < N; ++k) squares += A(v.at[k]) * A(v.at[k]);
    });
    const A factor = A(1 / std::sqrt(double(warp_sum(squares)) / double(width) + eps));
    if (lane() == 0) rstd.store(r, i % heads, factor);
    each_column<N>(width, [&](Index c) {
      const auto weight = g.template load_pack<N>(0, c);
      auto v = x.template load_pack<N>(r, first + c);
      for (int k = 0; k < N; ++k) v.at[k] = T((base + weight.at[k]) * A(T(A(v.at[k]) * factor)));
      y.template store_pack<N>(r, first + c, v);
    });
  });
}

template <class T, int N>
GYR_KERNEL head_norm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Global<const Acc<T>> rstd,
                                     Global<T> dx) {
  using A = Acc<T>;
  const Index heads = rstd.columns(), width = g.columns();
  each_row(x.rows() * heads, [&](Index i) {
    const Index r = i / heads, first = i % heads * width;
    const A factor = rstd.load(r, i % heads);
    A product = 0;
    each_column<N>(width, [&](Index c) {
      const auto in = x.template load_pack<N>(r, first + c), dout = dy.template load_pack<N>(r, first + c);
      const auto weight = g.template load_pack<N>(0, c);
      for (int k = 0; k < N; ++k) product += (base + weight.at[k]) * A(dout.at[k]) * A(in.at[k]);
    });
    const A mean = warp_sum(product) * factor / A(width);
    each_column<N>(width, [&](Index c) {
      const auto in = x.template load_pack<N>(r, first + c);
      const auto weight = g.template load_pack<N>(0, c);
      auto v = dy.template load_pack<N>(r, first + c);
      for (int k = 0; k < N; ++k) v.at[k] = T(factor * ((base + weight.at[k]) * A(v.at[k]) - A(in.at[k]) * factor * mean));
      dx.template store_pack<N>(r, first + c, v);
    });
  });
}

// dy x / norm of x, summed over a row's heads.
template <class T, int N>
struct WeightGradient {
  Global<const T> dy, x;
  Global<const Acc<T>> rstd;
  Index width;
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    using A = Acc<T>;
    for (Index h = 0; h < rstd.columns(); ++h) {
      const A factor = rstd.load(r, h);
      const auto dout = dy.template load_pack<N>(r, h * width + c), in = x.template load_pack<N>(r, h * width + c);
      for (int k = 0; k < N; ++k) sum.at[k] += A(dout.at[k]) * (A(in.at[k]) * factor);
    }
  }
};

}  // namespace

template <class T>
void head_norm(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset) {
  const Global<const T> in(x);
  const Global<const Acc<T>> weight(g);
  const Global<T> out(y);
  const Global<Acc<T>> factor(rstd);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "head_norm", grid_of_heads(in.rows() * factor.columns()), head_norm_kernel<T, n>, in, weight, Acc<T>(offset), eps, out, factor);
      },
      in, weight, out);
}

// dx may be dy's memory: what the weights need of it comes first.
template <class T>
void head_norm_backward(Device& dev, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  const auto partial = dev.scratch.tensor<A>(ceil_div(x.rows, block_rows), Index(g.extent(0)));
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), factor(rstd);
  const Global<T> din(dx);
  with_packs<T>(
      [&](auto n) {
        if (dg.data()) add_column_sums<n>(dev, "head_norm_backward", WeightGradient<T, n>{dout, in, factor, weight.columns()}, x.rows, partial, A(1), dg);
        launch(dev, "head_norm_backward", grid_of_heads(in.rows() * factor.columns()), head_norm_backward_kernel<T, n>, dout, in, weight,
               A(offset), factor, din);
      },
      dout, in, weight, din, Global<A>(partial));
}

GYR_SCALARS(GYR_HEAD_NORM)

}  // namespace gyr::backend
