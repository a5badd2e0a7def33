// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr int part_packs = 4;  // that a lane takes at a time
template <int N>
constexpr Index part_columns = Index(part_packs) * warp_size* N;
// f(p, c) for the lane's packs of a part of a row that begins at its column `first`.
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

// A warp takes a part of a row.
template <class T, int N>
GYR_KERNEL embedding_kernel(Global<const Token> tokens, Global<const T> table, Index first, Acc<T> scale, Global<T> x) {
  const int parts = int(ceil_div(x.columns(), part_columns<N>));
  each_row(x.rows() * parts, [&](Index task) {
    const int r = int(task) / parts;
    const Index column = (int(task) - r * parts) * part_columns<N> + N * lane();
    const Index row = Index(tokens.load(r)) - first;
    const bool held = row >= 0 && row < table.rows();
    Held<T, N> in[part_packs];  // zeros, of a token that others hold
    each_of_part<N>(x.columns(), column, [&](int p, Index c) {
      in[p] = Pack<T, N>();
      if (held) in[p] = table.template load_pack<N>(row, c);
    });
    each_of_part<N>(x.columns(), column, [&](int p, Index c) {
      const auto v = in[p].numbers();
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(scale * v.at[i]);
      x.template store_pack<N>(r, c, out);
    });
  });
}

// Bit l: whether this is the token of row first + l, before `last`.
GYR_DEVICE std::uint32_t equal_tokens(const Global<const Token>& tokens, Token token, Index first, Index last) {
  const Index r = first + lane();
  return ballot(r < last && tokens.load(r) == token);
}

// A warp owns some columns of a row of the table: the one that begins where the row's token occurs first. It walks over the tokens from there on, so
// that equal ones meet in order, and reads and writes the row of the table once. The walks are R^2 / 32 loads for each part of D, from cache.
template <class T, int N>
GYR_KERNEL embedding_backward_kernel(Global<const Token> tokens, Global<const T> dx, Index first, Acc<T> scale, Token pad_token_id,
                                     Global<Acc<T>> dtable) {
  using A = Acc<T>;
  const Index rows = dx.rows(), parts = ceil_div(dx.columns(), part_columns<N>);
  each_row(rows * parts, [&](Index task) {
    const Index begin = task / parts, column = task % parts * part_columns<N> + N * lane();
    const Token token = tokens.load(begin);
    const Index row = Index(token) - first;
    if (row < 0 || row >= dtable.rows() || (pad_token_id >= 0 && token == pad_token_id)) return;
    for (Index r = 0; r < begin; r += warp_size)
      if (equal_tokens(tokens, token, r, begin)) return;
    const auto each = [&](const auto& f) { each_of_part<N>(dx.columns(), column, f); };
    Pack<A, N> sum[part_packs];
    each([&](int p, Index c) { sum[p] = dtable.template load_pack<N>(row, c); });
    for (Index r = begin; r < rows; r += warp_size)
      for (std::uint32_t equal = equal_tokens(tokens, token, r, rows); equal; equal &= equal - 1) {
        const Index from = r + lowest_bit(equal);
        each([&](int p, Index c) {
          const auto more = dx.template load_numbers<N>(from, c);
          for (int i = 0; i < N; ++i) sum[p].at[i] += scale * more.at[i];
        });
      }
    each([&](int p, Index c) { dtable.template store_pack<N>(row, c, sum[p]); });
  });
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
  const Global<const T> dout(dx);
  const Global<Acc<T>> to(dtable);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "embedding_backward", grid_of_parts<n>(dout.rows(), dout.columns()), embedding_backward_kernel<T, n>, tokens, dout, first,
               Acc<T>(scale), pad_token_id, to);
      },
      dout, to);
}

GYR_SCALARS(GYR_EMBEDDING)

}  // namespace gyr::backend
