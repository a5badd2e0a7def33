// SPDX-License-Identifier: BSD-3-Clause
// Chunk states. Each block computes a tile of the state of one head. The first sum is the contribution of the chunk's
// tokens to the state, the second one is the contribution of the outputs to the gradient of the entering state:
//   L = sum_l exp(s_Q - s_l) dt_l x_l B_l',   sum_l exp(s_l) dy_l C_l'
#include "kernels/cuda/ssm/ssd_sm80.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::cuda::scan {

namespace {

// Computes a tile of sum over l of factor(l) left(l) right(l)'. Calls store(index in the state of all heads, value) for
// each element.
template <class T, class Factor, class Store>
GYR_DEVICE void sum_outer_products(const ChunkGrid& s, const Chunk& k, Index head, Index p0, Index n0, const Global<const T>& left,
                               const Global<const T>& right, const Factor& factor, const Store& store) {
  using A = Acc<T>;
  const Index P = s.head_dim, N = s.state_size, g = head / s.heads_per_group();
  A sum[4][wide<A>] = {};
  add_gemm(k.length, across([&](int p, Index l) { return p0 + p < P ? factor(l) * A(left.load(k.first + l, head * P + p0 + p)) : A(0); }),
              across([&](int n, Index l) { return n0 + n < N ? A(right.load(k.first + l, g * N + n0 + n)) : A(0); }), Shared<A>(), sum);
  each_of_tile<wide<A>>([&](int i, int j, int p, int n) {
    if (p0 + p < P && n0 + n < N) store(head * s.head_elements() + (p0 + p) * N + n0 + n, sum[i][j]);
  });
}

template <class T>
GYR_KERNEL chunk_states_kernel(ChunkGrid s, Tokens<T> in, States<Acc<T>> states) {
  using A = Acc<T>;
  BlockIndex rest;
  const Index n0 = rest.take(ceil_div(s.state_size, columns_of<A>)) * columns_of<A>, p0 = rest.take(ceil_div(s.head_dim, tile)) * tile;
  const Index head = rest.take(s.num_heads);
  const Chunk k(s, rest.left);
  if (!states.stores_leaving_state(s, k.number)) return;
  const HeadDecay<A> decay(s, k, in.decays, head);
  sum_outer_products<T>(
      s, k, head, p0, n0, in.x, in.b, [&](Index l) { return decay.to_end(l) * in.dt.load(k.first + l, head); },
      [&](Index at, A v) { states.with_leaving_state(s, k.number, [&](const Global<A>& x, Index row) { x.store(row, at, v); }); });
}

template <class T>
GYR_KERNEL chunk_states_of_outputs_kernel(ChunkGrid s, Tokens<T> in, Global<const T> dy, Global<Acc<T>> dstates) {
  using A = Acc<T>;
  BlockIndex rest;
  const Index n0 = rest.take(ceil_div(s.state_size, columns_of<A>)) * columns_of<A>, p0 = rest.take(ceil_div(s.head_dim, tile)) * tile;
  const Index head = rest.take(s.num_heads);
  const Chunk k(s, rest.left);
  const HeadDecay<A> decay(s, k, in.decays, head);
  sum_outer_products<T>(
      s, k, head, p0, n0, dy, in.c, [&](Index l) { return decay.from_start(l); }, [&](Index at, A v) { dstates.store(k.number, at, v); });
}

template <class T>
Grid grid_of(const ChunkGrid& s) {
  return {s.all_chunks() * s.num_heads * ceil_div(s.head_dim, tile) * ceil_div(s.state_size, columns_of<Acc<T>>), threads,
          gemm_tile_elements<Acc<T>> * int(sizeof(Acc<T>))};
}

}  // namespace

template <class T>
void chunk_states(Device& dev, const ChunkGrid& s, const Tokens<T>& in, const States<Acc<T>>& states) {
  if constexpr (std::is_same_v<T, bf16>)
    if (chunk_states_by_tensor_cores(dev, s, in, states)) return;
  launch(dev, "ssd", grid_of<T>(s), chunk_states_kernel<T>, s, in, states);
}

template <class T>
void chunk_states_of_outputs(Device& dev, const ChunkGrid& s, const Tokens<T>& in, Global<const T> dy, Global<Acc<T>> dstates) {
  if constexpr (std::is_same_v<T, bf16>)
    if (chunk_states_of_outputs_by_tensor_cores(dev, s, in, dy, dstates)) return;
  launch(dev, "ssd_backward", grid_of<T>(s), chunk_states_of_outputs_kernel<T>, s, in, dy, dstates);
}

template <class T>
bool walk_states([[maybe_unused]] Device& dev, [[maybe_unused]] const ChunkGrid& s, [[maybe_unused]] const Tokens<T>& in,
                 [[maybe_unused]] Global<const Acc<T>> over, [[maybe_unused]] const States<Acc<T>>& states,
                 [[maybe_unused]] const TensorCoreScratch& scratch) {
  if constexpr (std::is_same_v<T, bf16>) return walk_states_by_tensor_cores(dev, s, in, over, states, scratch);
  else return false;
}

template <class T>
bool walk_gradients([[maybe_unused]] Device& dev, [[maybe_unused]] const ChunkGrid& s, [[maybe_unused]] const Tokens<T>& in,
                    [[maybe_unused]] Global<const Acc<T>> over, [[maybe_unused]] Global<const T> dy, [[maybe_unused]] Global<const Acc<T>> entering,
                    [[maybe_unused]] Global<const Acc<T>> dlast, [[maybe_unused]] Global<Acc<T>> dinitial,
                    [[maybe_unused]] const SsdInputGradient<T>& d_in, [[maybe_unused]] const TensorCoreScratch& scratch,
                    [[maybe_unused]] TokenSums<Acc<T>>& sums) {
  if constexpr (std::is_same_v<T, bf16>) return walk_gradients_by_tensor_cores(dev, s, in, over, dy, entering, dlast, dinitial, d_in, scratch, sums);
  else return false;
}

#define GYR_STATE(T)                                                                                                                   \
  template void chunk_states<T>(Device&, const ChunkGrid&, const Tokens<T>&, const States<Acc<T>>&);                                         \
  template void chunk_states_of_outputs<T>(Device&, const ChunkGrid&, const Tokens<T>&, Global<const T>, Global<Acc<T>>);                    \
  template bool walk_states<T>(Device&, const ChunkGrid&, const Tokens<T>&, Global<const Acc<T>>, const States<Acc<T>>&, const TensorCoreScratch&); \
  template bool walk_gradients<T>(Device&, const ChunkGrid&, const Tokens<T>&, Global<const Acc<T>>, Global<const T>, Global<const Acc<T>>,  \
                                  Global<const Acc<T>>, Global<Acc<T>>, const SsdInputGradient<T>&, const TensorCoreScratch&, TokenSums<Acc<T>>&);
GYR_SCALARS(GYR_STATE)
#undef GYR_STATE

}  // namespace gyr::cuda::scan
