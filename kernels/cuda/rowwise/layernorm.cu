// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of LayerNorm. kernels/ops/layernorm.hpp has the formulas.
#include "kernels/ops/layernorm.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// inverse_width: 1 / D, the factor from the sum of a row to its mean, with D elements per row
template <class T, int N, int P>
GYR_KERNEL layernorm_kernel(Global<const T> x, Global<const Acc<T>> g, Global<const Acc<T>> b, Acc<T> inverse_width, Acc<T> eps, Global<T> y,
                            Global<Acc<T>> mean, Global<Acc<T>> rstd) {
  using A = Acc<T>;
  constexpr int K = rows_at_once<P>;
  const int rows = int(x.rows()), step = int(grid_blocks()) * K;
  const Index width = x.columns();
  const ColumnWeights<A, N, P> weight(g, A(0), 0, width), bias(b, A(0), 0, width);
  BlockSums<A, K> sum;
  for (int first = int(block_index()) * K; first < rows; first += step) {
    RowPart<T, N, P> in[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) in[k].take(x, first + k < rows ? first + k : rows - 1, 0, width);
    Pack<A, K> total = {}, squares = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k)
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c);
        for (int i = 0; i < N; ++i) total.at[k] += v.at[i];
      });
    const A lane_centre = sum(total) * inverse_width;
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const A centre = sum.of(lane_centre, k);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c);
        for (int i = 0; i < N; ++i) squares.at[k] += (v.at[i] - centre) * (v.at[i] - centre);
      });
    }
    const A lane_factor = inverse_root(sum(squares) * inverse_width + eps);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= rows) break;
      const A centre = sum.of(lane_centre, k), factor = sum.of(lane_factor, k);
      if (thread_index() == 0) mean.store(first + k, centre), rstd.store(first + k, factor);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), scale = weight.values(p, c), level = bias.values(p, c);
        Pack<T, N> out;
        for (int i = 0; i < N; ++i) out.at[i] = T(scale.at[i] * ((v.at[i] - centre) * factor) + level.at[i]);
        y.template store_pack<N>(first + k, c, out);
      });
    }
  }
}

// Computes dx for the rows of a block, and writes the block's contributions to dg and db to one row of `weights` and
// `biases`. dx may be dy's memory.
template <class T, int N, int P, bool adds>
GYR_KERNEL_WITHIN(P == 1 ? 112 : 168)
layernorm_backward_kernel(Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> inverse_width, Global<const Acc<T>> mean,
                          Global<const Acc<T>> rstd, Index rows_of_block, Global<T> dx, Global<Acc<T>> weights, Global<Acc<T>> biases) {
  using A = Acc<T>;
  constexpr int K = adds ? few_rows_at_once<P> : rows_at_once<P>;
  const int begin = int(block_index() * rows_of_block), rest = int(x.rows()) - begin,
            end = begin + (rest < rows_of_block ? rest : int(rows_of_block));
  const Index width = x.columns();
  const ColumnWeights<A, N, P> weight(g, A(0), 0, width);
  ColumnSums<A, N, P> dg(weights, block_index(), 0, width), db(biases, block_index(), 0, width);
  BlockSums<A, 2 * K> sum;
  for (int first = begin; first < end; first += K) {
    RowPart<T, N, P> in[K], dout[K], before[K];
    const int lane_value = first + sum.number() / 2, lane_row = lane_value < end ? lane_value : end - 1;
    const A lane_centre = mean.load(lane_row), lane_factor = rstd.load(lane_row);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const int r = first + k < end ? first + k : end - 1;
      in[k].take(x, r, 0, width), dout[k].take(dy, r, 0, width);
      if (adds) before[k].take(dx, r, 0, width);
    }
    Pack<A, 2 * K> total = {};  // sums of u = g dy, and of u (x - mean)
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const A centre = sum.of(lane_centre, 2 * k);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), d = dout[k].values(p, c), scale = weight.values(p, c);
        for (int i = 0; i < N; ++i) {
          const A u = scale.at[i] * d.at[i];
          total.at[2 * k] += u, total.at[2 * k + 1] += u * (v.at[i] - centre);
        }
      });
    }
    const A lane_mean = sum(total) * inverse_width * (sum.number() % 2 == 0 ? A(1) : lane_factor);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= end) break;
      const A centre = sum.of(lane_centre, 2 * k), factor = sum.of(lane_factor, 2 * k), level = sum.of(lane_mean, 2 * k),
              along = sum.of(lane_mean, 2 * k + 1);
      each_part<N, P>(width, [&](int p, Index c) {
        const auto v = in[k].values(p, c), d = dout[k].values(p, c), scale = weight.values(p, c);
        Pack<A, N> more = {}, of_weight;
        if (adds) more = before[k].values(p, c);
        Pack<T, N> din;
        for (int i = 0; i < N; ++i) {
          const A normed = (v.at[i] - centre) * factor, change = factor * (scale.at[i] * d.at[i] - level - normed * along);
          din.at[i] = T(adds ? more.at[i] + change : change);
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
        launch(dev, "layernorm", grid_of_rows_at_once<A, p>(in.rows(), threads), layernorm_kernel<T, n, p>, in, weight, bias, A(1) / A(in.columns()),
               A(eps), out, mean, rstd);
      },
      in, weight, bias, out);
}

template <class T>
void layernorm_backward(Device& dev, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db) {
  using A = Acc<T>;
  const Index rows = x.extent(0), width = x.extent(1), of_block = rows_of_sums<T>(rows, width, 1, 512), blocks = ceil_div(rows, of_block);
  // Contributions to dg and db are in adjacent columns of one scratch matrix, as far as they are requested.
  const Index sums = (dg.data() ? width : 0) + (db.data() ? width : 0);
  const auto partial = dev.scratch.tensor<A>(blocks, sums);
  if (dev.dry_run()) return;
  const auto columns = [&](Index first) { return Global<A>(Matrix<A>(partial.data() + first, blocks, width, sums)); };
  const Global<A> weights = dg.data() ? columns(0) : Global<A>(), biases = db.data() ? columns(sums - width) : Global<A>();
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), centre(mean), factor(rstd);
  const Global<T> din(dx);
  with_row_packs<T>(
      width,
      [&](auto n, auto p, int threads) {
        const auto go = [&](const auto& kernel) {
          launch(dev, "layernorm_backward", {blocks, threads, BlockSums<A, 2 * rows_at_once<p>>::bytes(threads)}, kernel, dout, in, weight,
                 A(1) / A(width), centre, factor, of_block, din, weights, biases);
        };
        if (add == Add::yes) go(layernorm_backward_kernel<T, n, p, true>);
        else go(layernorm_backward_kernel<T, n, p, false>);
      },
      dout, in, weight, din, weights, biases);
  if (sums == 0) return;
  const Global<A> first(dg.data() ? dg : db), second = dg.data() ? Global<A>(db) : Global<A>();
  add_blocks<A>(dev, "layernorm_backward", Tensor2<const A>(partial), A(1), first, second);
}

GYR_SCALARS(GYR_LAYERNORM)

}  // namespace gyr::backend
