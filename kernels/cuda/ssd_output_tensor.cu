// SPDX-License-Identifier: BSD-3-Clause
// Outputs of bf16 by tensor cores: a block takes 64 tokens of a head, each of its four warps 16 of them. Products of C and B never leave registers:
// the fragments that they come in are, weighted, those that the product with x takes its left operand from.
#include "kernels/cuda/ssd_tensor.hpp"

namespace gyr::cuda::scan {

namespace {

// Tiles of a block: C, then B and x of the tokens that it looks back to; where x lies, parts of the state that entered come first.
template <int W>
struct Room {
  Tile c, b, x, state;
  GYR_FUNCTION explicit Room(const Cut& s) : c(0, s.state_size), b(c.end(), s.state_size), x(b.end(), W), state(b.end(), span, W) {}
  int bytes() const { return std::max(x.end(), state.end()); }
};

// exp(s_l) C_l S' of 16 tokens.
template <int W>
GYR_DEVICE void add_state(const Cut& s, const Chunk& k, const HeadDecay<float>& decay, Index head, Index l0, const Global<const float>& entering,
                          const Room<W>& room, FragmentD (&out)[W / 8]) {
  for (Index n0 = 0; n0 < s.state_size; n0 += span) {
    sync_block();
    round_state(s, entering, k.number, head, n0, room.state);
    sync_block();
    const Index left = s.state_size - n0;
    add_by_rows(room.c, n0, room.state, 0, left < span ? left : span, out);
  }
  float factor[2];
  for (int h = 0; h < 2; ++h) factor[h] = l0 + my_row(h) < k.length ? decay.from_start(l0 + my_row(h)) : 0.0f;
  each_number(out, [&](int h, int, float& v) { v *= factor[h]; });
}

// Products of tokens from l0 and from t0 become W(l,s) dt_s.
GYR_DEVICE void weigh(const Cut& s, const Tokens<bf16>& in, const Chunk& k, const HeadDecay<float>& decay, Index head, Index l0, Index t0,
                      FragmentD (&products)[span / 8]) {
  DecaySum<float> mine[2] = {};
  Index begin[2] = {Documents::unlimited, Documents::unlimited};  // of rows behind the chunk: they see nothing
  for (int h = 0; h < 2; ++h)
    if (const Index l = l0 + my_row(h); l < k.length) mine[h] = decay.at(l), begin[h] = k.begin(s, l);
  each_number(products, [&](int h, int column, float& v) {
    const Index t = t0 + column;
    v = t <= l0 + my_row(h) && t >= begin[h] ? v * decay_between(mine[h], decay.at(t)) * in.dt.load(k.first + t, head) : 0.0f;
  });
}

template <int W>
GYR_KERNEL outputs_kernel(Cut s, Tokens<bf16> in, Global<const float> skip, Global<const float> entering, Global<bf16> y) {
  const Index tiles = ceil_div(s.chunk_size, span), N = s.state_size, P = s.head_dim;
  BlockIndex rest;
  const Index l0 = (tiles - 1 - rest.take(tiles)) * span, head = rest.take(s.num_heads), group = head / s.heads_per_group();  // the longest begin
  const Chunk k(s, rest.left);
  if (l0 >= k.length) return;
  const Room<W> room(s);
  const HeadDecay<float> decay(s, k, in.decays, head);
  const Index end = k.first + k.length, begin = k.begin(s, l0) / span * span;
  const auto fetch_b = [&](Index t0) { fetch(in.b, k.first + t0, end, group * N, N, room.b); };
  const auto fetch_x = [&](Index t0) { fetch(in.x, k.first + t0, end, head * P, P, room.x); };
  fetch(in.c, k.first + l0, end, group * N, N, room.c);
  commit_copies();
  fetch_b(begin);
  commit_copies();

  FragmentD out[W / 8] = {};
  if (k.carried(s, l0)) {
    wait_for_copies<1>();
    add_state<W>(s, k, decay, head, l0, entering, room, out);
    sync_block();
  }
  fetch_x(begin);
  for (Index t0 = begin; t0 <= l0; t0 += span) {
    if (t0 > begin) {
      sync_block();
      fetch_b(t0), fetch_x(t0);
    }
    commit_copies();
    wait_for_copies<0>();
    sync_block();
    FragmentD products[span / 8] = {};
    add_by_rows(room.c, 0, room.b, 0, N, products);
    weigh(s, in, k, decay, head, l0, t0, products);
    add_by_columns(products, room.x, out);
  }
  const float d = skip.load(head);
  each_pair(out, [&](int h, int p, float v, float next) {
    const Index row = k.first + l0 + my_row(h), column = head * P + p;
    if (row >= end || p >= P) return;
    const auto x = in.x.template load_pack<2>(row, column);
    y.template store_pack<2>(row, column, {{bf16(v + d * float(x.at[0])), bf16(next + d * float(x.at[1]))}});
  });
}

template <int W>
void launch_outputs(Device& dev, const Cut& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const float>& entering,
                    const Global<bf16>& y) {
  launch(dev, "ssd", {s.all_chunks() * s.num_heads * ceil_div(s.chunk_size, span), tensor_threads, Room<W>(s).bytes()}, outputs_kernel<W>, s, in,
         d, entering, y);
}

}  // namespace

bool outputs_by_tensor_cores(Device& dev, const Cut& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const float>& entering,
                             const Global<bf16>& y) {
  if (!fits_tensor_cores(s, in.x, in.b, in.c, entering, y)) return false;
  if (s.head_dim <= 64) launch_outputs<64>(dev, s, in, d, entering, y);
  else launch_outputs<128>(dev, s, in, d, entering, y);
  return true;
}

}  // namespace gyr::cuda::scan
