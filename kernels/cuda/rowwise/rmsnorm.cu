// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of RMSNorm. kernels/ops/rmsnorm.hpp has the formulas.
#include "kernels/ops/rmsnorm.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// inverse_width: 1 / D, the factor from the sum of a row to its mean, with D elements per row
template <class T, int N, int P>
GYR_KERNEL rmsnorm_kernel(Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Acc<T> inverse_width, Acc<T> eps, Global<T> y,
                          Global<Acc<T>> rstd) {
  using A = Acc<T>;
  constexpr int K = rows_at_once<P>;
  const int rows = int(x.rows()), step = int(grid_blocks()) * K;
  const Index width = x.columns();
  const ColumnWeights<A, N, P> weight(g, base, 0, width);
  BlockSums<A, K> sum;
  for (int first = int(block_index()) * K; first < rows; first += step) {
    RowPart<T, N, P> in[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) in[k].take(x, first + k < rows ? first + k : rows - 1, 0, width);
    Pack<A, K> squares = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k)
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c);
        for (int i = 0; i < N; ++i) squares.at[k] += v.at[i] * v.at[i];
      });
    const A lane_value = inverse_root(sum(squares) * inverse_width + eps);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= rows) break;
      const A factor = sum.of(lane_value, k);
      if (thread_index() == 0) rstd.store(first + k, factor);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), scale = weight.values(p, c);
        Pack<T, N> out;
        for (int i = 0; i < N; ++i) out.at[i] = T(v.at[i] * factor);
        const auto normed = Held<T, N>(out).values();
        for (int i = 0; i < N; ++i) out.at[i] = T(scale.at[i] * normed.at[i]);
        y.template store_pack<N>(first + k, c, out);
      });
    }
  }
}

// Computes dx for the rows of a block, and writes the block's contribution to dg to one row of `partial`. dx may be
// dy's memory.
template <class T, int N, int P, bool adds>
GYR_KERNEL_WITHIN(P == 1 ? 80 : 168)
rmsnorm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Acc<T> inverse_width, Global<const Acc<T>> rstd,
                        Index rows_of_block, Global<T> dx, Global<Acc<T>> partial) {
  using A = Acc<T>;
  constexpr int K = adds ? few_rows_at_once<P> : rows_at_once<P>;
  const int begin = int(block_index() * rows_of_block), rest = int(x.rows()) - begin,
            end = begin + (rest < rows_of_block ? rest : int(rows_of_block));
  const Index width = x.columns();
  const ColumnWeights<A, N, P> weight(g, base, 0, width);
  ColumnSums<A, N, P> dg(partial, block_index(), 0, width);
  BlockSums<A, K> sum;
  for (int first = begin; first < end; first += K) {
    RowPart<T, N, P> in[K], dout[K], before[K];
    const int lane_row = first + sum.number();
    const A lane_factor = rstd.load(lane_row < end ? lane_row : end - 1);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const int r = first + k < end ? first + k : end - 1;
      in[k].take(x, r, 0, width), dout[k].take(dy, r, 0, width);
      if (adds) before[k].take(dx, r, 0, width);
    }
    Pack<A, K> product = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k)
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), d = dout[k].values(p, c), scale = weight.values(p, c);
        for (int i = 0; i < N; ++i) product.at[k] += scale.at[i] * d.at[i] * v.at[i];
      });
    const A lane_mean = sum(product) * lane_factor * inverse_width;
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= end) break;
      const A factor = sum.of(lane_factor, k), mean = sum.of(lane_mean, k);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), d = dout[k].values(p, c), scale = weight.values(p, c);
        Pack<A, N> more = {}, sum_of_weight;
        if (adds) more = before[k].values(p, c);
        Pack<T, N> din;
        for (int i = 0; i < N; ++i) {
          const A normed = v.at[i] * factor, change = factor * (scale.at[i] * d.at[i] - normed * mean);
          din.at[i] = T(adds ? more.at[i] + change : change);
          sum_of_weight.at[i] = normed * d.at[i];
        }
        dx.template store_pack<N>(first + k, c, din);
        dg.add(p, c, sum_of_weight);
      });
    }
  }
  dg.store();
}

}  // namespace

template <class T>
void rmsnorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset) {
  using A = Acc<T>;
  const Global<const T> in(x);
  const Global<const A> weight(g);
  const Global<T> out(y);
  with_row_packs<T>(
      in.columns(),
      [&](auto n, auto p, int threads) {
        launch(dev, "rmsnorm", grid_of_rows_at_once<A, p>(in.rows(), threads), rmsnorm_kernel<T, n, p>, in, weight, A(offset), A(1) / A(in.columns()),
               A(eps), out, rstd);
      },
      in, weight, out);
}

template <class T>
void rmsnorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add add,
                      Tensor2<T> dx, Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1), of_block = rows_of_sums<T>(rows, width), blocks = ceil_div(rows, of_block);
  const Global<A> partial(dev.scratch.tensor<A>(dg.data() ? blocks : 0, width));
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), factor(rstd);
  const Global<T> din(dx);
  with_row_packs<T>(
      width,
      [&](auto n, auto p, int threads) {
        const auto go = [&](const auto& kernel) {
          launch(dev, "rmsnorm_backward", {blocks, threads, BlockSums<A, rows_at_once<p>>::bytes(threads)}, kernel, dout, in, weight, A(offset),
                 A(1) / A(width), factor, of_block, din, dg.data() ? partial : Global<A>());
        };
        if (add == Add::yes) go(rmsnorm_backward_kernel<T, n, p, true>);
        else go(rmsnorm_backward_kernel<T, n, p, false>);
      },
      dout, in, weight, din, partial);
  if (dg.data()) add_blocks<A>(dev, "rmsnorm_backward", partial, A(1), dg);
}

GYR_SCALARS(GYR_RMSNORM)

}  // namespace gyr::backend
