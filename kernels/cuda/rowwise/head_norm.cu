// SPDX-License-Identifier: BSD-3-Clause
// RMSNorm of each head (QK norm, kernels/ops/head_norm.hpp). A head occupies some lanes of a warp, one pack per lane. A
// warp processes adjacent heads of several rows, and issues all its loads before it uses the first value. A head wider
// than a warp is read twice, the second time from cache.
#include <bit>

#include "kernels/ops/head_norm.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr int forward_rows = 4, backward_rows = 2;  // rows that a warp processes at a time, in the forward and backward kernels
constexpr int backward_warps = 4;  // warps per block of the backward kernels
constexpr Index backward_blocks = 7 * 132;  // backward blocks that an H100 holds at once with 72 registers per thread
constexpr Index most_shared_bytes = 96 << 10;  // maximum bytes of shared memory for sums of columns
constexpr int log_warp_size = std::bit_width(unsigned(warp_size)) - 1;

// Distribution of heads over the lanes of warps: each head occupies 2^shift lanes.
struct HeadLanes {
  int heads, width, shift;

  // Number of warp-wide tiles into which the heads of a row are divided.
  GYR_FUNCTION int tiles() const { return (heads + (1 << (log_warp_size - shift)) - 1) >> (log_warp_size - shift); }
  // head: this lane's head in a tile. column: first column of this lane's pack in the head.
  GYR_DEVICE int head(int tile) const { return (tile << (log_warp_size - shift)) + (lane() >> shift); }
  template <int N>
  GYR_DEVICE int column() const {
    return (lane() & ((1 << shift) - 1)) * N;
  }
  // Sums each of K values over the lanes of a head. All these lanes get the sums.
  template <class A, int K>
  GYR_DEVICE Pack<A, K> sum(Pack<A, K> v) const {
    for (int with = (1 << shift) / 2; with > 0; with /= 2) {
      GYR_UNROLL
      for (int k = 0; k < K; ++k) v.at[k] += shuffle_xor(v.at[k], with);
    }
    return v;
  }
};
template <int N>
HeadLanes head_lanes(Index heads, Index width) {
  return {int(heads), int(width), int(std::bit_width(std::uint64_t(std::min(ceil_div(width, N), Index(warp_size)) - 1)))};
}

// Number of blocks. A block has rows_at_once rows, or strides through more rows if there would be more than `most`
// blocks.
inline Index blocks_of(const HeadLanes& at, Index rows, Index rows_at_once, Index most) {
  return at.tiles() * std::min(ceil_div(rows, rows_at_once), std::max<Index>(most / at.tiles(), 1));
}

// Work of a warp: the heads of its block's tile, in rows_at_once rows from `first`, and again every `step` rows. head:
// this lane's head.
struct HeadWork {
  int head, first, step;

  static GYR_DEVICE HeadWork of(const HeadLanes& at, int rows_at_once) {
    const int tiles = at.tiles(), row_block = int(block_index()) / tiles, row_blocks = int(grid_blocks()) / tiles;
    return {at.head(int(block_index()) - row_block * tiles), (row_block * block_warps() + warp()) * rows_at_once,
            row_blocks * block_warps() * rows_at_once};
  }
};

// inverse_width: 1 / head_dim, the factor from the sum of a head to its mean
template <class T, int N>
GYR_KERNEL_WITHIN(64)
head_norm_kernel(HeadLanes at, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Acc<T> inverse_width, Acc<T> eps, Global<T> y,
                 Global<Acc<T>> rstd) {
  using A = Acc<T>;
  constexpr int K = forward_rows;
  const int c = at.column<N>(), rows = int(x.rows());
  Pack<A, N> weight = {};
  if (c < at.width) weight = g.template load_pack<N>(0, c);
  const HeadWork mine = HeadWork::of(at, K);
  // end: end of this lane's rows, 0 if the lane has no head
  const int column = mine.head * at.width + c, end = mine.head < at.heads && c < at.width ? rows : 0;
  const Strip<const T, N> in(x, 0, column);
  const Strip<T, N> out(y, 0, column);
  const Strip<A, 1> factors(rstd, 0, mine.head);
  for (int r = mine.first; r < rows; r += mine.step) {
    Held<T, N> held[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      held[k] = Pack<T, N>();
      if (r + k < end) held[k] = in.load(r + k);
    }
    Pack<A, K> squares = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const auto v = held[k].values();
      for (int i = 0; i < N; ++i) squares.at[k] += v.at[i] * v.at[i];
    }
    squares = at.sum(squares);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (r + k >= end) continue;
      const A factor = inverse_root(squares.at[k] * inverse_width + eps);
      if (c == 0) factors.store(r + k, {factor});
      const auto v = held[k].values();
      Pack<T, N> result;
      for (int i = 0; i < N; ++i) result.at[i] = T(v.at[i] * factor);
      const auto normed = Held<T, N>(result).values();
      for (int i = 0; i < N; ++i) result.at[i] = T((base + weight.at[i]) * normed.at[i]);
      out.store(r + k, result);
    }
  }
}

template <class T, int N>
GYR_KERNEL wide_head_norm_kernel(HeadLanes at, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Acc<T> inverse_width, Acc<T> eps, Global<T> y,
                                 Global<Acc<T>> rstd) {
  using A = Acc<T>;
  const HeadWork mine = HeadWork::of(at, 1);
  const Index first = Index(mine.head) * at.width;
  for (int r = mine.first; r < x.rows(); r += mine.step) {
    A squares = 0;
    each_column<N>(at.width, [&](Index c) {
      const auto v = x.template load_values<N>(r, first + c);
      for (int k = 0; k < N; ++k) squares += v.at[k] * v.at[k];
    });
    const A factor = inverse_root(warp_sum(squares) * inverse_width + eps);
    if (lane() == 0) rstd.store(r, mine.head, factor);
    each_column<N>(at.width, [&](Index c) {
      const auto weight = g.template load_pack<N>(0, c);
      const auto v = x.template load_values<N>(r, first + c);
      Pack<T, N> out;
      for (int k = 0; k < N; ++k) out.at[k] = T((base + weight.at[k]) * A(T(v.at[k] * factor)));
      y.template store_pack<N>(r, first + c, out);
    });
  }
}

// dx may be dy's memory. If `partial` is not empty, each block writes its contribution to the gradient of g to one row
// of it.
template <class T, int N>
GYR_KERNEL_WITHIN(72)
head_norm_backward_kernel(HeadLanes at, Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> base, Acc<T> inverse_width,
                          Global<const Acc<T>> rstd, Global<T> dx, Global<Acc<T>> partial) {
  using A = Acc<T>;
  constexpr int K = backward_rows;
  const int c = at.column<N>(), rows = int(x.rows());
  Pack<A, N> weight = {}, dg = {};
  if (c < at.width) weight = g.template load_pack<N>(0, c);
  for (int i = 0; i < N; ++i) weight.at[i] += base;
  const HeadWork mine = HeadWork::of(at, K);
  // end: end of this lane's rows, 0 if the lane has no head
  const int column = mine.head * at.width + c, end = mine.head < at.heads && c < at.width ? rows : 0;
  const Strip<const T, N> in(x, 0, column), dout(dy, 0, column);
  const Strip<T, N> din(dx, 0, column);
  const Strip<const A, 1> factors(rstd, 0, mine.head);
  for (int r = mine.first; r < rows; r += mine.step) {
    Held<T, N> held[K], dheld[K];
    A factor[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      held[k] = dheld[k] = Pack<T, N>(), factor[k] = 0;
      if (r + k < end) held[k] = in.load(r + k), dheld[k] = dout.load(r + k), factor[k] = factors.load(r + k).at[0];
    }
    Pack<A, K> product = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const auto v = held[k].values(), d = dheld[k].values();
      for (int i = 0; i < N; ++i) product.at[k] += weight.at[i] * d.at[i] * v.at[i];
    }
    product = at.sum(product);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (r + k >= end) continue;
      const A mean = product.at[k] * factor[k] * inverse_width;
      const auto v = held[k].values(), d = dheld[k].values();
      Pack<T, N> result;
      for (int i = 0; i < N; ++i) {
        const A normed = v.at[i] * factor[k];
        result.at[i] = T(factor[k] * (weight.at[i] * d.at[i] - normed * mean));
        dg.at[i] += d.at[i] * normed;
      }
      din.store(r + k, result);
    }
  }
  if (!partial) return;
  const Shared<Pack<A, N>> storage;
  storage.store(thread_index(), dg);
  sync_block();
  const int lanes = 1 << at.shift;
  if (thread_index() >= lanes || c >= at.width) return;
  Pack<A, N> sum = {};
  for (int from = thread_index(); from < block_threads(); from += lanes) {
    const auto more = storage.load(from);
    for (int i = 0; i < N; ++i) sum.at[i] += more.at[i];
  }
  partial.template store_pack<N>(block_index(), c, sum);
}

template <class T, int N>
GYR_KERNEL wide_head_norm_backward_kernel(HeadLanes at, Global<const T> dy, Global<const T> x, Global<const Acc<T>> g, Acc<T> base,
                                          Acc<T> inverse_width, Global<const Acc<T>> rstd, Global<T> dx, Global<Acc<T>> partial) {
  using A = Acc<T>;
  const int packs = at.width / N;
  const Shared<Pack<A, N>> storage;  // sums over rows for the gradient of g, per warp and column
  const auto place = [&](Index c) { return warp() * packs + int(c) / N; };
  each_column<N>(at.width, [&](Index c) { storage.store(place(c), Pack<A, N>()); });
  const HeadWork mine = HeadWork::of(at, 1);
  const Index first = Index(mine.head) * at.width;
  for (int r = mine.first; r < x.rows(); r += mine.step) {
    const A factor = rstd.load(r, mine.head);
    A product = 0;
    each_column<N>(at.width, [&](Index c) {
      const auto in = x.template load_values<N>(r, first + c), dout = dy.template load_values<N>(r, first + c);
      const auto weight = g.template load_pack<N>(0, c);
      for (int k = 0; k < N; ++k) product += (base + weight.at[k]) * dout.at[k] * in.at[k];
    });
    const A mean = warp_sum(product) * factor * inverse_width;
    each_column<N>(at.width, [&](Index c) {
      const auto in = x.template load_values<N>(r, first + c), dout = dy.template load_values<N>(r, first + c);
      const auto weight = g.template load_pack<N>(0, c);
      auto sum = storage.load(place(c));
      Pack<T, N> din;
      for (int k = 0; k < N; ++k) {
        const A normed = in.at[k] * factor;
        din.at[k] = T(factor * ((base + weight.at[k]) * dout.at[k] - normed * mean));
        sum.at[k] += dout.at[k] * normed;
      }
      dx.template store_pack<N>(r, first + c, din);
      storage.store(place(c), sum);
    });
  }
  if (!partial) return;
  sync_block();
  for (int p = thread_index(); p < packs; p += block_threads()) {
    Pack<A, N> sum = {};
    for (int w = 0; w < block_warps(); ++w) {
      const auto more = storage.load(w * packs + p);
      for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
    }
    partial.template store_pack<N>(block_index(), Index(p) * N, sum);
  }
}

}  // namespace

template <class T>
void head_norm(Device& dev, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset) {
  using A = Acc<T>;
  const Global<const T> in(x);
  const Global<const A> weight(g);
  const Global<T> out(y);
  const Global<A> factor(rstd);
  with_packs<T>(
      [&](auto n) {
        const HeadLanes at = head_lanes<n>(factor.columns(), weight.columns());
        const auto go = [&](const auto& kernel, int rows_at_once) {
          launch(dev, "head_norm", {blocks_of(at, in.rows(), usual_warps * rows_at_once, most_blocks), usual_threads}, kernel, at, in, weight,
                 A(offset), A(1) / A(at.width), A(eps), out, factor);
        };
        if (at.width > n * warp_size) go(wide_head_norm_kernel<T, n>, 1);
        else go(head_norm_kernel<T, n>, forward_rows);
      },
      in, weight, out);
}

template <class T>
void head_norm_backward(Device& dev, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset) {
  using A = Acc<T>;
  constexpr int rows_at_once = backward_warps * backward_rows;
  const Index width = g.extent(0), heads = rstd.columns;
  // Largest number of blocks for any pack width.
  const Index most_partials = std::min(heads * ceil_div(x.rows, Index(rows_at_once)), std::max(heads, backward_blocks));
  const auto partials = dev.scratch.tensor<A>(dg.data() ? most_partials : 0, width);
  if (dev.dry_run()) return;
  const Global<const T> dout(dy), in(x);
  const Global<const A> weight(g), factor(rstd);
  const Global<T> din(dx);
  with_packs<T>(
      [&](auto n) {
        const HeadLanes at = head_lanes<n>(heads, width);
        const Index blocks = blocks_of(at, x.rows, rows_at_once, backward_blocks);
        const Global<A> partial = dg.data() ? Global<A>(Matrix<A>(partials.data(), blocks, width, width)) : Global<A>();
        const auto go = [&](const auto& kernel, int warps, Index storage) {
          launch(dev, "head_norm_backward", {blocks, warps * warp_size, int(storage)}, kernel, at, dout, in, weight, A(offset), A(1) / A(width),
                 factor, din, partial);
        };
        if (width > n * warp_size) {
          const Index of_warp = width * Index(sizeof(A)), warps = std::clamp<Index>(most_shared_bytes / of_warp, 1, backward_warps);
          go(wide_head_norm_backward_kernel<T, n>, int(warps), warps * of_warp);
        } else go(head_norm_backward_kernel<T, n>, backward_warps, backward_warps * warp_size * Index(sizeof(Pack<A, n>)));
        if (partial) add_blocks<A>(dev, "head_norm_backward", partial, A(1), dg);
      },
      dout, in, weight, din, Global<A>(partials));
}

GYR_SCALARS(GYR_HEAD_NORM)

}  // namespace gyr::backend
