// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N, int P>
GYR_KERNEL layernorm_kernel(Global<const T> x, Global<const Acc<T>> g, Global<const Acc<T>> b, Acc<T> eps, Global<T> y, Global<Acc<T>> mean,
                            Global<Acc<T>> rstd) {
  using A = Acc<T>;
  constexpr int K = rows_at_once<P>;
  const Index rows = x.rows(), width = x.columns();
  const A share = A(1) / A(width);
  const ColumnWeights<A, N, P> weight(g, A(0), 0, width);
  BlockSums<A, K> sum;
  for (Index first = block_index() * K; first < rows; first += grid_blocks() * K) {
    RowPart<T, N, P> in[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) in[k].take(x, first + k < rows ? first + k : rows - 1, 0, width);
    Pack<A, K> total = {}, squares = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k)
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].numbers(p, c);
        for (int i = 0; i < N; ++i) total.at[k] += v.at[i];
      });
    total = sum(total);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      total.at[k] *= share;
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].numbers(p, c);
        for (int i = 0; i < N; ++i) squares.at[k] += (v.at[i] - total.at[k]) * (v.at[i] - total.at[k]);
      });
    }
    squares = sum(squares);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= rows) break;
      const A centre = total.at[k], factor = inverse_root(squares.at[k] * share + eps);
      if (thread_index() == 0) mean.store(first + k, centre), rstd.store(first + k, factor);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].numbers(p, c), scale = weight.numbers(p, c);
        Pack<A, N> bias = {};
        if (b) bias = b.template load_pack<N>(0, c);
        Pack<T, N> out;
        for (int i = 0; i < N; ++i) out.at[i] = T(scale.at[i] * ((v.at[i] - centre) * factor) + bias.at[i]);
        y.template store_pack<N>(first + k, c, out);
      });
    }
  }
}

// dx of the rows of a block, and of the gradients of weights and bias what they add, to rows of `weights` and `biases`. dx may be dy's memory.
template <class T, int N, int P>
GYR_KERNEL_WITHIN(P == 1 ? 80 : 168)
layernorm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Global<const Acc<T>> mean, Global<const Acc<T>> rstd,
                          bool adds, Index rows_of_block, Global<T> dx, Global<Acc<T>> weights, Global<Acc<T>> biases) {
  using A = Acc<T>;
  constexpr int K = few_rows_at_once<P>;
  const Index begin = block_index() * rows_of_block, end = begin + rows_of_block < x.rows() ? begin + rows_of_block : x.rows(), width = x.columns();
  const A share = A(1) / A(width);
  const ColumnWeights<A, N, P> weight(g, A(0), 0, width);
  ColumnSums<A, N, P> dg(weights, block_index(), 0, width), db(biases, block_index(), 0, width);
  BlockSums<A, 2 * K> sum;
  for (Index first = begin; first < end; first += K) {
    RowPart<T, N, P> in[K], dout[K];
    A centre[K], factor[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const Index r = first + k < end ? first + k : end - 1;
      in[k].take(x, r, 0, width), dout[k].take(dy, r, 0, width), centre[k] = mean.load(r), factor[k] = rstd.load(r);
    }
    Pack<A, 2 * K> total = {};  // of u, and of u times what the norm makes of x
    GYR_UNROLL
    for (int k = 0; k < K; ++k)
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].numbers(p, c), d = dout[k].numbers(p, c), scale = weight.numbers(p, c);
        for (int i = 0; i < N; ++i) {
          const A u = scale.at[i] * d.at[i];
          total.at[2 * k] += u, total.at[2 * k + 1] += u * ((v.at[i] - centre[k]) * factor[k]);
        }
      });
    total = sum(total);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= end) break;
      const A level = total.at[2 * k] * share, along = total.at[2 * k + 1] * share;
      each_part<N, P>(width, [&](int p, Index c) {
        Held<T, N> before{Pack<T, N>()};
        if (adds) before = dx.template load_pack<N>(first + k, c);
        const auto v = in[k].numbers(p, c), d = dout[k].numbers(p, c), scale = weight.numbers(p, c), more = before.numbers();
        Pack<A, N> of_weight;
        Pack<T, N> din;
        for (int i = 0; i < N; ++i) {
          const A normed = (v.at[i] - centre[k]) * factor[k];
          din.at[i] = T(more.at[i] + factor[k] * (scale.at[i] * d.at[i] - level - normed * along));
          of_weight.at[i] = d.at[i] * normed;
        }
        dx.template store_pack<N>(first + k, c, din);
        dg.add(p, c, of_weight), db.add(p, c, d);
      });
    }
  }
  dg.store(), db.store();
}

}  // namespace

template <class T>
void layernorm(Device& dev, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd) {
  using A = Acc<T>;
  const Global<const T> in(x);
  const Global<const A> weight(g), bias(b);
  const Global<T> out(y);
  with_row_packs<T>(
      in.columns(),
      [&](auto n, auto p, int threads) {
        launch(dev, "layernorm", grid_of_rows_at_once<A, p>(in.rows(), threads), layernorm_kernel<T, n, p>, in, weight, bias, A(eps), out, mean,
               rstd);
      },
      in, weight, bias, out);
}

template <class T>
void layernorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1), of_block = rows_of_sums<T>(rows, width), blocks = ceil_div(rows, of_block);
  const auto partial = [&](const Tensor1<A>& sum) { return sum.data() ? Global<A>(dev.scratch.tensor<A>(blocks, width)) : Global<A>(); };
  const Global<A> weights = partial(dg), biases = partial(db);
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), centre(mean), factor(rstd);
  const Global<T> din(dx);
  with_row_packs<T>(
      width,
      [&](auto n, auto p, int threads) {
        launch(dev, "layernorm_backward", {blocks, threads, BlockSums<A, 2 * few_rows_at_once<p>>::bytes(threads)},
               layernorm_backward_kernel<T, n, p>, dout, in, weight, centre, factor, add == Add::yes, of_block, din, weights, biases);
      },
      dout, in, weight, din, weights, biases);
  if (dg.data()) add_blocks<A>(dev, "layernorm_backward", weights, A(1), dg);
  if (db.data()) add_blocks<A>(dev, "layernorm_backward", biases, A(1), db);
}

GYR_SCALARS(GYR_LAYERNORM)

}  // namespace gyr::backend
