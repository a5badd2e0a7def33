// SPDX-License-Identifier: BSD-3-Clause
// How work on matrices is split: a warp for a row, neighbouring packs in neighbouring lanes; a long run over all threads; and sums over rows in
// blocks of fixed length, in order and without atomics: the same bits every run.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace gyr::cuda {

inline constexpr int usual_threads = 256, usual_warps = usual_threads / warp_size;
inline constexpr Index most_blocks = 1 << 16;  // of kernels that stride through what there is
inline constexpr Index block_rows = 64;        // whose sum one thread takes

// Blocks for kernels that go through the rows of x; and for those that take a single row for a run, by packs of N.
template <class T>
Grid grid_of_rows(const Global<T>& x) {
  return {std::min(ceil_div(x.rows(), usual_warps), most_blocks), usual_threads};
}
template <int N, class T>
Grid grid_of(const Global<T>& x) {
  if (x.rows() != 1) return grid_of_rows(x);
  return {std::min(ceil_div(x.columns(), Index(N) * usual_threads), most_blocks), usual_threads};
}

// f(r) for every row of this warp.
template <class F>
GYR_DEVICE void each_row(Index rows, const F& f) {
  for (Index r = block_index() * block_warps() + warp(); r < rows; r += grid_blocks() * block_warps()) f(r);
}
// f(c) for every pack of a row that is this lane's.
template <int N, class F>
GYR_DEVICE void each_column(Index columns, const F& f) {
  for (Index c = N * lane(); c < columns; c += N * warp_size) f(c);
}
// f(r, c) for every pack of x that is this thread's.
template <int N, class T, class F>
GYR_DEVICE void each_pack(const Global<T>& x, const F& f) {
  if (x.rows() == 1) {
    const Index step = grid_blocks() * block_threads() * N;
    for (Index c = (block_index() * block_threads() + thread_index()) * N; c < x.columns(); c += step) f(Index(0), c);
  } else {
    each_row(x.rows(), [&](Index r) { each_column<N>(x.columns(), [&](Index c) { f(r, c); }); });
  }
}

// partial(b, c) = what term(r, c, sum) adds for the rows of block b.
template <int N, class A, class Term>
GYR_KERNEL column_sums_kernel(Term term, Index rows, Global<A> partial) {
  const Index tiles = ceil_div(partial.columns(), Index(N) * block_threads());
  const Index b = block_index() / tiles, c = (block_index() % tiles * block_threads() + thread_index()) * N;
  if (c >= partial.columns()) return;
  Pack<A, N> sum = {};
  for (Index r = b * block_rows; r < (b + 1) * block_rows && r < rows; ++r) term.add(r, c, sum);
  partial.template store_pack<N>(b, c, sum);
}

// The sum over b of partial(b, c), for the lane's column c: every warp of the block adds up some b, and the first warp gets their sum, in one order.
// `room`: a number for each thread.
template <class A>
GYR_DEVICE A sum_of_blocks(const Global<const A>& partial, Index c, const Shared<A>& room) {
  A v = 0;
  if (c < partial.columns())
    for (Index b = warp(); b < partial.rows(); b += block_warps()) v += partial.load(b, c);
  room.store(thread_index(), v);
  sync_block();
  A total = 0;
  if (warp() == 0)
    for (int w = 0; w < block_warps(); ++w) total += room.load(w * warp_size + lane());
  return total;
}
template <class A>
Grid grid_of_sums(const Global<const A>& partial) {
  const int threads = int(std::clamp<Index>(partial.rows(), 1, 32)) * warp_size;
  return {ceil_div(partial.columns(), warp_size), threads, threads * int(sizeof(A))};
}

// out(c) += scale * sum over b of partial(b, c).
template <class A>
GYR_KERNEL add_blocks_kernel(Global<const A> partial, A scale, Global<A> out) {
  const Index c = block_index() * warp_size + lane();
  const A sum = sum_of_blocks(partial, c, Shared<A>());
  if (warp() == 0 && c < out.columns()) out.store(c, out.load(c) + scale * sum);
}
template <class A>
void add_blocks(Device& dev, const char* name, const Global<const A>& partial, A scale, const Global<A>& out) {
  launch(dev, name, grid_of_sums(partial), add_blocks_kernel<A>, partial, scale, out);
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
