// SPDX-License-Identifier: BSD-3-Clause
// Outputs of a chunk, from the entering state S and the chunk's own tokens. Each block computes a tile of tokens and
// channels of a head:
//   y_l = exp(s_l) S C_l + sum_{s<=l} W(l,s) u_s + D x_l,   W(l,s) = (C_l . B_s) exp(s_l - s_s) within a document
#include "kernels/cuda/ssm/ssd_sm80.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::cuda::scan {

namespace {

template <class T>
GYR_KERNEL outputs_kernel(ChunkGrid s, Tokens<T> in, Global<const Acc<T>> skip, Global<const Acc<T>> entering, Global<T> y) {
  using A = Acc<T>;
  const Index P = s.head_dim, N = s.state_size;
  BlockIndex rest;
  const Index p0 = rest.take(ceil_div(P, columns_of<A>)) * columns_of<A>, l0 = rest.take(ceil_div(s.chunk_size, tile)) * tile;
  const Index head = rest.take(s.num_heads), group = head / s.heads_per_group();
  const Chunk k(s, rest.left);
  if (l0 >= k.length) return;
  const HeadDecay<A> decay(s, k, in.decays, head);
  const Shared<A> operands, weights(gemm_tile_elements<A> * int(sizeof(A)));
  const auto row_of = [&](const Global<const T>& x, Index l, Index n) { return l < k.length ? A(x.load(k.first + l, group * N + n)) : A(0); };
  const auto queries = along([&](int l, Index n) { return row_of(in.c, l0 + l, n); });

  A sum[4][wide<A>] = {};
  if (k.carried(s, l0)) {
    const auto state = along([&](int p, Index n) { return p0 + p < P ? entering.load(k.number, (head * P + p0 + p) * N + n) : A(0); });
    add_gemm(N, queries, state, operands, sum);
    scale_rows(sum, [&](int l) { return l0 + l < k.length ? decay.from_start(l0 + l) : A(0); });
  }
  for (Index s0 = k.begin(s, l0) / tile * tile; s0 <= l0; s0 += tile) {
    A cb[4][4] = {};
    add_gemm(N, queries, along([&](int t, Index n) { return row_of(in.b, s0 + t, n); }), operands, cb);
    each_of_tile<4>([&](int i, int j, int row, int column) {
      const Index l = l0 + row, t = s0 + column;
      const bool seen = l < k.length && t <= l && t >= k.begin(s, l);
      weights.store(row * square_stride + column, seen ? cb[i][j] * decay.between(l, t) : A(0));
    });
    const auto inputs = across([&](int p, Index t) {
      const Index row = k.first + s0 + t;
      return p0 + p < P && s0 + t < k.length ? in.dt.load(row, head) * A(in.x.load(row, head * P + p0 + p)) : A(0);
    });
    add_gemm(tile, along([&](int l, Index t) { return weights.load(l * square_stride + int(t)); }), inputs, operands, sum);
  }
  each_of_tile<wide<A>>([&](int i, int j, int l, int p) {
    const Index row = k.first + l0 + l, column = head * P + p0 + p;
    if (l0 + l < k.length && p0 + p < P) y.store(row, column, T(sum[i][j] + skip.load(head) * A(in.x.load(row, column))));
  });
}

}  // namespace

template <class T>
void outputs(Device& dev, const ChunkGrid& s, const Tokens<T>& in, Tensor1<const Acc<T>> d, Global<const Acc<T>> entering,
             [[maybe_unused]] const TensorCoreScratch& tensors, [[maybe_unused]] bool walked, Global<T> y) {
  if constexpr (std::is_same_v<T, bf16>)
    if (outputs_by_tensor_cores(dev, s, in, d, entering, tensors, walked, y)) return;
  const Index blocks = s.all_chunks() * s.num_heads * ceil_div(s.chunk_size, tile) * ceil_div(s.head_dim, columns_of<Acc<T>>);
  launch(dev, "ssd", {blocks, threads, (gemm_tile_elements<Acc<T>> + square_tile_elements) * int(sizeof(Acc<T>))}, outputs_kernel<T>, s, in, d, entering, y);
}

#define GYR_OUTPUTS(T) \
  template void outputs<T>(Device&, const ChunkGrid&, const Tokens<T>&, Tensor1<const Acc<T>>, Global<const Acc<T>>, const TensorCoreScratch&, bool, Global<T>);
GYR_SCALARS(GYR_OUTPUTS)
#undef GYR_OUTPUTS

}  // namespace gyr::cuda::scan
