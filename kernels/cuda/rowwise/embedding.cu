// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the embedding lookup and its gradient (kernels/ops/embedding.hpp).
#include "kernels/ops/embedding.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/cuda/rowwise/token_groups.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr int part_packs = 4;  // packs that a lane loads at a time
template <int N>
constexpr Index part_columns = Index(part_packs) * warp_size* N;
// Calls f(p, c) for this lane's packs in a part of a row. first: the lane's first column of the part.
template <int N, class F>
GYR_DEVICE void each_of_part(Index columns, Index first, const F& f) {
  GYR_UNROLL
  for (int p = 0; p < part_packs; ++p)
    if (const Index c = first + Index(p) * warp_size * N; c < columns) f(p, c);
}
template <int N>
Grid grid_of_parts(Index rows, Index columns) {
  return {std::min(ceil_div(rows * ceil_div(columns, part_columns<N>), Index(usual_warps)), most_blocks), usual_threads};
}

// One warp writes a part of a row.
template <class T, int N>
GYR_KERNEL embedding_kernel(Global<const Token> tokens, Global<const T> table, Index first, Acc<T> scale, Global<T> x) {
  const int parts = int(ceil_div(x.columns(), part_columns<N>));
  each_row(x.rows() * parts, [&](Index task) {
    const int r = int(task) / parts;
    const Index column = (int(task) - r * parts) * part_columns<N> + N * lane();
    const Index row = Index(tokens.load(r)) - first;
    const bool held = row >= 0 && row < table.rows();
    Held<T, N> in[part_packs];  // zeros for a token whose table row is on another rank
    each_of_part<N>(x.columns(), column, [&](int p, Index c) {
      in[p] = Pack<T, N>();
      if (held) in[p] = table.template load_pack<N>(row, c);
    });
    each_of_part<N>(x.columns(), column, [&](int p, Index c) {
      const auto v = in[p].values();
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(scale * v.at[i]);
      x.template store_pack<N>(r, c, out);
    });
  });
}

// ---- The gradient ----
// Rows are first sorted by token (token_groups.hpp). For each token, a warp adds its rows to the table in order. If
// there are many rows, warps add them chunk by chunk into scratch, and a block adds the chunk sums in order. The
// gradient of one token's row does not depend on other tokens.

GYR_KERNEL order_tokens_kernel(Global<const Token> tokens, HeldTokens held, int bits, int keys, Global<std::int32_t> places) {
  BucketOrder(tokens, held, bits, keys).write(places);
}

// Row of `sums` for the chunk that begins at place p (index of a row in the sorted order), for tokens with several
// chunks. No two such chunks have the same row.
GYR_DEVICE int sum_of_chunk(int p) { return (p + chunk_rows - 1) / chunk_rows; }

constexpr int gradient_rows = 4;  // number of rows whose loads are in flight
template <class T>
constexpr int gradient_packs = sizeof(T) > 2 ? 2 : 4;  // packs of columns per lane
template <class T, int N>
constexpr int gradient_columns = gradient_packs<T>* warp_size* N;

// One warp adds up the rows of a chunk, for a part of their columns.
template <class T, int N>
GYR_KERNEL embedding_backward_kernel(Global<const std::int32_t> places, Global<const T> dx, Acc<T> scale, Global<Acc<T>> dtable,
                                     Global<Acc<T>> sums) {
  using A = Acc<T>;
  const int parts = int(ceil_div(dx.columns(), gradient_columns<T, N>));
  each_row(dx.rows() * parts, [&](Index task) {
    const int p = int(task) / parts;
    const Index column = (int(task) - p * parts) * gradient_columns<T, N> + N * lane();
    const TokenPlace place = TokenPlace::load(places, p);
    if (place.length == 0) return;
    const auto each = [&](const auto& f) {
      GYR_UNROLL
      for (int i = 0; i < gradient_packs<T>; ++i)
        if (const Index c = column + i * warp_size * N; c < dx.columns()) f(i, c);
    };
    const bool single_chunk = place.chunks == 1;
    int mine = place.row, next_row = 0;  // each lane holds two row indices of the chunk
    if (place.length > 1) {
      const auto row = [&](int i) { return i < place.length ? places.load(p + i, 0) : 0; };
      mine = row(lane()), next_row = row(warp_size + lane());
    }
    Pack<A, N> sum[gradient_packs<T>] = {};
    if (single_chunk) each([&](int i, Index c) { sum[i] = dtable.template load_pack<N>(place.table_row, c); });
    for (int first = 0; first < place.length; first += gradient_rows) {
      Held<T, N> in[gradient_rows][gradient_packs<T>];
      GYR_UNROLL
      for (int k = 0; k < gradient_rows; ++k)
        if (first + k < place.length) {
          const int from = shuffle(first + k < warp_size ? mine : next_row, (first + k) % warp_size);
          each([&](int i, Index c) { in[k][i] = dx.template load_pack<N>(from, c); });
        }
      GYR_UNROLL
      for (int k = 0; k < gradient_rows; ++k)
        if (first + k < place.length)
          each([&](int i, Index) {
            const auto more = in[k][i].values();
            for (int j = 0; j < N; ++j) sum[i].at[j] += scale * more.at[j];
          });
    }
    if (single_chunk) each([&](int i, Index c) { dtable.template store_pack<N>(place.table_row, c, sum[i]); });
    else each([&](int i, Index c) { sums.template store_pack<N>(sum_of_chunk(p), c, sum[i]); });
  });
}

constexpr int places_of_block = usual_threads * 4;  // places (rows in sorted order) that a block searches for tokens with several chunks

// dtable += chunk sums, for tokens with several chunks. A block processes some columns, and the tokens whose first
// place is in its range. Each warp adds some of the chunk sums.
template <class A, int N>
GYR_KERNEL add_chunks_kernel(Global<const std::int32_t> places, Global<const A> sums, Global<A> dtable) {
  const int tiles = int(ceil_div(dtable.columns(), Index(N) * warp_size)), group = int(block_index()) / tiles;
  const Index c = ((int(block_index()) - group * tiles) * warp_size + lane()) * N;
  const int begin = group * places_of_block, words = places_of_block / warp_size;
  const Shared<Pack<A, N>> storage;
  const Shared<std::uint32_t> begins(usual_threads * int(sizeof(Pack<A, N>)));
  for (int w = warp(); w < words; w += usual_warps) {
    const int p = begin + w * warp_size + lane();
    const std::uint32_t several = ballot(p < places.rows() && places.load(p, 3) > 1);
    if (lane() == 0) begins.store(w, several);
  }
  sync_block();
  for (int w = 0; w < words; ++w)
    for (std::uint32_t several = begins.load(w); several; several &= several - 1) {
      const int p = begin + w * warp_size + lowest_bit(several), first = sum_of_chunk(p);
      const TokenPlace place = TokenPlace::load(places, p);
      Pack<A, N> sum = {};
      if (c < dtable.columns()) GYR_UNROLL_BY(4)
      for (int i = warp(); i < place.chunks; i += usual_warps) {
        const auto more = sums.template load_pack<N>(first + i, c);
        for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
      }
      storage.store(thread_index(), sum);
      sync_block();
      if (warp() == 0 && c < dtable.columns()) {
        auto total = dtable.template load_pack<N>(place.table_row, c);
        for (int from = 0; from < usual_warps; ++from) {
          const auto more = storage.load(from * warp_size + lane());
          for (int k = 0; k < N; ++k) total.at[k] += more.at[k];
        }
        dtable.template store_pack<N>(place.table_row, c, total);
      }
      sync_block();
    }
}

}  // namespace

template <class T>
void embedding(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> table, Index first, double scale, Tensor2<T> x) {
  const Global<const T> from(table);
  const Global<T> to(x);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "embedding", grid_of_parts<n>(to.rows(), to.columns()), embedding_kernel<T, n>, tokens, from, first, Acc<T>(scale), to);
      },
      from, to);
}

template <class T>
void embedding_backward(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable) {
  using A = Acc<T>;
  const Index rows = dx.extent(0), columns = dx.extent(1);
  const bool chunks = rows >= 2 * chunk_rows;  // true if a token may have several chunks
  const Global<std::int32_t> places(dev.scratch.tensor<std::int32_t>(rows, 4));
  const Global<A> sums(dev.scratch.tensor<A>(chunks ? ceil_div(rows, Index(chunk_rows)) : 0, columns));
  if (dev.dry_run() || rows == 0 || dtable.extent(0) == 0) return;
  const Global<const T> dout(dx);
  const Global<A> to(dtable);
  const TokenBuckets buckets(rows, to.rows());
  launch(dev, "embedding_backward", buckets.grid(), order_tokens_kernel, tokens,
         HeldTokens{std::uint32_t(first), std::uint32_t(to.rows()), pad_token_id}, buckets.bits, buckets.keys, places);
  with_packs_of<pack_bytes / int(sizeof(A))>(  // 16-byte packs of dtable, so that adjacent lanes access adjacent packs of the table
      [&](auto n) {
        const Index parts = ceil_div(columns, Index(gradient_columns<T, n>)), tiles = ceil_div(columns, Index(n) * warp_size);
        launch(dev, "embedding_backward", {std::min(ceil_div(rows * parts, Index(usual_warps)), most_blocks), usual_threads},
               embedding_backward_kernel<T, n>, places, dout, Acc<T>(scale), to, sums);
        const int storage = usual_threads * int(sizeof(Pack<A, n>)) + places_of_block / warp_size * int(sizeof(std::uint32_t));
        if (chunks)
          launch(dev, "embedding_backward", {ceil_div(rows, Index(places_of_block)) * tiles, usual_threads, storage}, add_chunks_kernel<A, n>, places,
                 sums, to);
      },
      dout, to, sums);
}

GYR_SCALARS(GYR_EMBEDDING)

}  // namespace gyr::backend
