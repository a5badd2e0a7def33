// SPDX-License-Identifier: BSD-3-Clause
// Distribution of matrix rows over threads: one warp per row with adjacent packs in adjacent lanes, or one block for a
// few rows held in registers, or all threads for one long row. Sums over rows are computed in blocks of fixed length,
// in order and without atomics, so that results are bitwise reproducible.
#pragma once

#include "kernels/cuda/machine/launch.hpp"

namespace gyr::cuda {

inline constexpr int usual_threads = 256, usual_warps = usual_threads / warp_size;
inline constexpr Index most_blocks = 1 << 16;  // maximum grid size of grid-stride kernels
inline constexpr Index block_rows = 64;        // number of rows that one thread adds up

// grid_of_rows: grid with one warp per row of x. grid_of: the same, but a single long row is split into packs of N over
// all threads.
template <class T>
Grid grid_of_rows(const Global<T>& x) {
  return {std::min(ceil_div(x.rows(), usual_warps), most_blocks), usual_threads};
}
template <int N, class T>
Grid grid_of(const Global<T>& x) {
  if (x.rows() != 1) return grid_of_rows(x);
  return {std::min(ceil_div(x.columns(), Index(N) * usual_threads), most_blocks), usual_threads};
}

// Calls f(r) for every row of this warp.
template <class F>
GYR_DEVICE void each_row(Index rows, const F& f) {
  for (Index r = block_index() * block_warps() + warp(); r < rows; r += grid_blocks() * block_warps()) f(r);
}
// Calls f(c) for every pack of a row that belongs to this lane.
template <int N, class F>
GYR_DEVICE void each_column(Index columns, const F& f) {
  for (Index c = N * lane(); c < columns; c += N * warp_size) f(c);
}
// Calls f(r, c) for every pack of x that belongs to this thread.
template <int N, class T, class F>
GYR_DEVICE void each_pack(const Global<T>& x, const F& f) {
  if (x.rows() == 1) {
    const Index step = grid_blocks() * block_threads() * N;
    for (Index c = (block_index() * block_threads() + thread_index()) * N; c < x.columns(); c += step) f(Index(0), c);
  } else {
    each_row(x.rows(), [&](Index r) { each_column<N>(x.columns(), [&](Index c) { f(r, c); }); });
  }
}

// ---- Rows in registers ----
// A block processes a few rows at a time, and issues all their loads before it uses the first value. A thread holds P
// packs of N of each row, a block's width apart. With P = 0, for longer rows or rows without packs, nothing is held in
// registers, and values are loaded from memory each time.

template <int P>
inline constexpr int rows_at_once = P == 1   ? 4
                                    : P == 2 ? 2
                                             : 1;
template <int P>
inline constexpr int few_rows_at_once = P == 1 ? 2 : 1;  // rows that a block holds at once, in kernels that read three tensors

// most_row_threads: most threads per block, so that each may have 168 registers; most_packs: most packs per thread
inline constexpr int most_row_threads = 384, most_packs = 4;
inline int row_threads(Index width, Index values) {  // values: elements per thread
  return int(std::clamp<Index>(ceil_div(width, values * warp_size), 1, most_row_threads / warp_size)) * warp_size;
}

// Calls f(N, P, threads per block) for rows of `width` elements of T.
template <class T, class F, class... X>
void with_row_packs(Index width, const F& f, const Global<X>&... tensors) {
  const auto take = [&](auto n, auto p) { f(n, p, row_threads(width, n * std::max<int>(p, 1))); };
  with_packs<T>(
      [&](auto n) {
        constexpr Index reach = n * most_row_threads;
        if (n == 1 || width > most_packs * reach) take(n, std::integral_constant<int, 0>());
        else if constexpr (n > 1) {
          if (width <= reach) take(n, std::integral_constant<int, 1>());
          else if (width <= 2 * reach) take(n, std::integral_constant<int, 2>());
          else take(n, std::integral_constant<int, most_packs>());
        }
      },
      tensors...);
}

// Calls f(p, c) for the p-th pack of this thread, at column c, in a row of `width` elements.
template <int N, int P, class F>
GYR_DEVICE void each_part(Index width, const F& f) {
  if constexpr (P > 0) {
    GYR_UNROLL
    for (int p = 0; p < P; ++p)
      if (const int c = (p * block_threads() + thread_index()) * N; c < int(width)) f(p, Index(c));
  } else {
    for (Index c = N * thread_index(); c < width; c += N * block_threads()) f(0, c);
  }
}

// Elements that a thread holds of a row of x, from column `first` on.
template <class T, int N, int P>
class RowPart {
 public:
  GYR_DEVICE void take(const Global<const T>& x, Index r, Index first, Index width) {
    if constexpr (P > 0) each_part<N, P>(width, [&](int p, Index c) { held_[p] = x.template load_pack<N>(r, first + c); });
    else x_ = x, row_ = r, first_ = first;
  }
  GYR_DEVICE Pack<Acc<T>, N> values(int p, Index c) const {
    if constexpr (P > 0) return held_[p].values();
    else return Held<T, N>(x_.template load_pack<N>(row_, first_ + c)).values();
  }

 private:
  Held<T, N> held_[P > 0 ? P : 1];
  Global<const T> x_;
  Index row_, first_;
};

// Column weights: base + g, or base if g is empty. They are held in registers if a thread has one or two packs.
template <class A, int N, int P>
class ColumnWeights {
  static constexpr bool held = P == 1 || P == 2;

 public:
  GYR_DEVICE ColumnWeights(const Global<const A>& g, A base, Index first, Index width) : g_(g), base_(base), first_(first) {
    if constexpr (held) each_part<N, P>(width, [&](int p, Index c) { held_[p] = at(c); });
  }
  GYR_DEVICE Pack<A, N> values(int p, Index c) const {
    if constexpr (held) return held_[p];
    else return at(c);
  }

 private:
  GYR_DEVICE Pack<A, N> at(Index c) const {
    Pack<A, N> v = {};
    if (g_) v = g_.template load_pack<N>(0, first_ + c);
    for (int i = 0; i < N; ++i) v.at[i] += base_;
    return v;
  }
  Pack<A, N> held_[held ? P : 1];
  Global<const A> g_;
  A base_;
  Index first_;
};

// Column sums of a thread. They are written to one row of `partial`, from column `first` on, unless `partial` is empty.
template <class A, int N, int P>
class ColumnSums {
 public:
  GYR_DEVICE ColumnSums(const Global<A>& partial, Index row, Index first, Index width) : to_(partial), row_(row), first_(first), width_(width) {
    if constexpr (P == 0)
      if (to_) each_part<N, P>(width, [&](int, Index c) { to_.template store_pack<N>(row, first + c, Pack<A, N>()); });
  }
  GYR_DEVICE void add(int p, Index c, const Pack<A, N>& more) {
    if constexpr (P > 0) {
      for (int i = 0; i < N; ++i) sum_[p].at[i] += more.at[i];
    } else if (to_) {
      auto sum = to_.template load_pack<N>(row_, first_ + c);
      for (int i = 0; i < N; ++i) sum.at[i] += more.at[i];
      to_.template store_pack<N>(row_, first_ + c, sum);
    }
  }
  GYR_DEVICE void store() const {
    if constexpr (P > 0)
      if (to_) each_part<N, P>(width_, [&](int p, Index c) { to_.template store_pack<N>(row_, first_ + c, sum_[p]); });
  }

 private:
  Pack<A, N> sum_[P > 0 ? P : 1] = {};
  Global<A> to_;
  Index row_, first_, width_;
};

// Sums of K values at a time over a block of up to most_row_threads threads. K is a power of two, and 32 / K lanes of
// each warp handle one value. There are two alternating shared-memory buffers. A barrier separates the reads of a
// buffer from the next writes to it.
template <class A, int K>
class BlockSums {
  static constexpr int sharing = warp_size / K;

 public:
  static int bytes(int threads) { return 2 * threads / warp_size * int(sizeof(Pack<A, K>)); }
  // number: index of this lane's value. of: the k-th value, broadcast from the lanes that hold it to all lanes of the
  // warp.
  static GYR_DEVICE int number() { return int(unsigned(lane()) / sharing); }
  static GYR_DEVICE A of(A value, int k) { return K == 1 ? value : shuffle(value, k * sharing); }

  // Returns the sum over the block of this lane's value.
  GYR_DEVICE A operator()(const Pack<A, K>& v) {
    const A mine = warp_sums_by_lane(v);
    const int from = int(unsigned(lane()) % sharing);
    if (from == 0) storage_.store(first_ + warp() * K + number(), mine);
    sync_block();
    A sum = 0;
    GYR_UNROLL
    for (int i = 0; i < (most_row_threads / warp_size + sharing - 1) / sharing; ++i)
      if (const int w = from + i * sharing; w < block_warps()) sum += storage_.load(first_ + w * K + number());
    GYR_UNROLL
    for (int with = sharing / 2; with > 0; with /= 2) sum += shuffle_xor(sum, with);
    first_ = first_ == 0 ? block_warps() * K : 0;
    return sum;
  }

 private:
  Shared<A> storage_;
  int first_ = 0;
};

// Grid for kernels that stride through all rows, with shared memory for BlockSums of A.
template <class A, int P>
Grid grid_of_rows_at_once(Index rows, int threads) {
  return {std::min(ceil_div(rows, Index(rows_at_once<P>)), most_blocks), threads, BlockSums<A, rows_at_once<P>>::bytes(threads)};
}

// Rows per block for kernels that also sum over rows. More rows per block reduce the cost of writing the sums, once per
// block. Fewer rows per block occupy all SMs of an H100, each of which holds threads_at_once threads.
template <class T>
Index rows_of_sums(Index rows, Index width, Index groups = 1, Index threads_at_once = 768) {
  constexpr Index multiprocessors = 132, least = 8;
  const Index blocks = ceil_div(multiprocessors * threads_at_once / row_threads(width, pack_bytes / Index(sizeof(T))), groups);
  return std::max(least, ceil_div(rows, blocks));
}

// ---- Sums over rows ----

// partial(b, c) = sum over the rows r of block b, accumulated with term.add(r, c, sum).
template <int N, class A, class Term>
GYR_KERNEL column_sums_kernel(Term term, Index rows, Global<A> partial) {
  const Index tiles = ceil_div(partial.columns(), Index(N) * block_threads());
  const Index b = block_index() / tiles, c = (block_index() % tiles * block_threads() + thread_index()) * N;
  if (c >= partial.columns()) return;
  Pack<A, N> sum = {};
  for (Index r = b * block_rows; r < (b + 1) * block_rows && r < rows; ++r) term.add(r, c, sum);
  partial.template store_pack<N>(b, c, sum);
}

// Sum over b of partial(b, c) for the lane's column c. Every warp of the block adds up some of the b. The first warp
// gets the total, added in a fixed order. storage: one element per thread.
template <class A>
GYR_DEVICE A sum_of_blocks(const Global<const A>& partial, Index c, const Shared<A>& storage) {
  constexpr int in_flight = 16;  // loads in flight per thread
  A v = 0;
  if (c < partial.columns())
    for (int first = warp(), rows = int(partial.rows()); first < rows; first += in_flight * block_warps()) {
      A more[in_flight];
      GYR_UNROLL
      for (int i = 0; i < in_flight; ++i) {
        const int b = first + i * block_warps();
        more[i] = b < rows ? partial.load(b, c) : A(0);
      }
      for (int i = 0; i < in_flight; ++i) v += more[i];
    }
  storage.store(thread_index(), v);
  sync_block();
  A total = 0;
  if (warp() == 0)
    for (int w = 0; w < block_warps(); ++w) total += storage.load(w * warp_size + lane());
  return total;
}
template <class A>
Grid grid_of_sums(const Global<const A>& partial) {
  const int threads = int(std::clamp<Index>(partial.rows(), 1, 32)) * warp_size;
  return {ceil_div(partial.columns(), warp_size), threads, threads * int(sizeof(A))};
}

// out(c) += scale * sum over b of partial(b, c). Columns beyond those of `out` are added to `next`.
template <class A>
GYR_KERNEL add_blocks_kernel(Global<const A> partial, A scale, Global<A> out, Global<A> next) {
  const Index c = block_index() * warp_size + lane(), next_column = c - out.columns();
  const A sum = sum_of_blocks(partial, c, Shared<A>());
  if (warp() > 0) return;
  if (next_column < 0) out.store(c, out.load(c) + scale * sum);
  else if (next_column < next.columns()) next.store(next_column, next.load(next_column) + scale * sum);
}
template <class A>
void add_blocks(Device& dev, const char* name, const Global<const A>& partial, A scale, const Global<A>& out, const Global<A>& next = {}) {
  launch(dev, name, grid_of_sums(partial), add_blocks_kernel<A>, partial, scale, out, next);
}

// out(c) += scale * sum over r of term(r, c). `partial`: (ceil(rows / block_rows), columns).
template <int N, class A, class Term>
void add_column_sums(Device& dev, const char* name, const Term& term, Index rows, Tensor2<A> partial, A scale, Tensor1<A> out) {
  const Index columns = partial.extent(1);
  launch(dev, name, {Index(partial.extent(0)) * ceil_div(columns, Index(N) * usual_threads), usual_threads}, column_sums_kernel<N, A, Term>, term,
         rows, partial);
  add_blocks<A>(dev, name, Tensor2<const A>(partial), scale, out);
}

}  // namespace gyr::cuda
