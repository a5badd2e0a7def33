// SPDX-License-Identifier: BSD-3-Clause
// FlashAttention-2 forward on tensor cores with mma.sync (Dao, 2023). Each of the four warps of a block has 16 R
// queries of a head, R = 1 or 2. Tiles of 64 keys and values pass through a two-stage buffer: cp.async loads the next
// tile while the block computes with the current one. Scores stay in registers: the accumulator fragments of Q K'
// become the left operand of P V. With R = 2 each K and V fragment that is read from shared memory is used twice, so
// that shared memory keeps pace with the tensor cores. A row has the same bits with either R.
#include "kernels/cuda/attention/attention_rows.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

// Online softmax: the scores of 16 R queries and 64 keys become p, and the rows' maximum and sum are updated. shrink:
// factors for the earlier sums and outputs. Returns true if any factor in the warp differs from 1.
template <int R>
GYR_DEVICE bool softmax_step(FragmentD (&s)[R][tile / 8], Rows<R>& rows, float (&shrink)[2 * R]) {
  bool shrinks = false;
  GYR_UNROLL
  for (int h = 0; h < 2 * R; ++h) {
    FragmentD(&score)[tile / 8] = s[h / 2];
    float most = rows.top[h];
    GYR_UNROLL
    for (int n = 0; n < tile / 8; ++n) {
      GYR_UNROLL
      for (int c = 0; c < 2; ++c) most = largest(most, score[n].at[h % 2 * 2 + c]);
    }
    for (int with = 1; with < quads; with *= 2) most = largest(most, shuffle_xor(most, with));
    const float base = most == -infinity ? 0 : most;  // 0 if the row has not seen any key yet
    shrink[h] = exp2(rows.top[h] - base);
    shrinks = shrinks || shrink[h] != 1;
    rows.top[h] = most;
    float sum = rows.sum[h] * shrink[h];
    GYR_UNROLL
    for (int n = 0; n < tile / 8; ++n) {
      GYR_UNROLL
      for (int c = 0; c < 2; ++c) {
        float& p = score[n].at[h % 2 * 2 + c];
        p = exp2(p - base), sum += p;
      }
    }
    rows.sum[h] = sum;
  }
  return ballot(shrinks) != 0;
}

// Multiplies p by the dropout factors.
template <int R>
GYR_DEVICE void drop_weights(const Heads& s, const Dropout& dropout, const Draws& draws, Index head, const Rows<R>& rows, int first_key,
                             FragmentD (&p)[R][tile / 8]) {
  GYR_UNROLL
  for (int r = 0; r < R; ++r) {
    GYR_UNROLL
    for (int n = 0; n < tile / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i)
        p[r][n].at[i] *= s.kept<float>(dropout, draws, head, rows.row(2 * r + i / 2), first_key + n * 8 + lane() % quads * 2 + i % 2);
    }
  }
}

template <int W, int R>
struct Places {
  static constexpr int q_tile = 4 * 16 * R, bytes = Tile<W, q_tile>::bytes + 4 * Tile<W>::bytes;
  GYR_DEVICE static Shared<bf16> queries() { return Shared<bf16>(0); }
  GYR_DEVICE static Shared<bf16> keys(int stage) { return Shared<bf16>(Tile<W, q_tile>::bytes + stage * Tile<W>::bytes); }
  GYR_DEVICE static Shared<bf16> values(int stage) { return keys(2 + stage); }
};

template <int W, int R, bool caps, bool drops>
GYR_KERNEL flash_kernel(Heads s, ScoreOf<float> score_of, bool fresh, Global<const bf16> q, Global<const bf16> k, Global<const bf16> v,
                        Global<float> o, Global<float> m, Global<float> l) {
  using P = Places<W, R>;
  const int tiles = int(ceil_div(s.queries, P::q_tile)), at = int(block_index() / tiles), head = at % int(s.num_heads);
  const int b = at / int(s.num_heads);
  const int first = (tiles - 1 - int(block_index() % tiles)) * P::q_tile;  // blocks with the most visible keys start first
  const int last = first + P::q_tile < s.queries ? first + P::q_tile : int(s.queries);
  const int begin = int(s.hidden(b, first)), end = int(s.seen(b, last - 1));
  const auto fetch_keys = [&](int j, int stage) {
    const Index first_key_row = b * s.keys, kv_head = head / int(s.group());
    fetch<W>(k, first_key_row + j, first_key_row + s.keys, kv_head * s.head_dim, s.head_dim, P::keys(stage));
    fetch<W>(v, first_key_row + j, first_key_row + s.keys, kv_head * s.v_head_dim, s.v_head_dim, P::values(stage));
  };
  fetch<W, P::q_tile>(q, b * s.queries + first, (b + 1) * s.queries, head * s.head_dim, s.head_dim, P::queries());
  fetch_keys(begin, 0);
  commit_copies();

  Rows<R> rows(s, b, first + warp() * 16 * R, last);
  FragmentD out[R][W / 8] = {};
  const Outputs<W, R> outputs{o, b * s.queries, head * s.v_head_dim, int(s.v_head_dim)};
  if (!fresh) {
    rows.carry_on(m, l, b * s.queries, head);
    outputs.load(rows, out);
  }
  Draws draws;
  if constexpr (drops) draws = s.draws_of(score_of.dropout, score_of.dropout.draws(), b);
  int stage = 0;
  for (int j = begin; j < end; j += tile, stage = 1 - stage) {
    wait_copies<0>();
    sync_block();  // all warps have finished with the previous tile, whose stage may be overwritten
    if (j + tile < end) fetch_keys(j + tile, 1 - stage);
    commit_copies();
    if (!rows.overlaps(j, tile)) continue;
    FragmentD score[R][tile / 8] = {};
    float shrink[2 * R];
    add_by_rows<W>([&](int r, int c) { return left_at<W>(P::queries(), (warp() * R + r) * 16, c); }, P::keys(stage), score);
    GYR_UNROLL
    for (int r = 0; r < R; ++r) {
      GYR_UNROLL
      for (int n = 0; n < tile / 8; ++n) {
        GYR_UNROLL
        for (float& x : score[r][n].at) x = score_of.of<caps>(x);
      }
    }
    if (!rows.sees_all(j, tile)) hide(s, b, rows, j, score);
    const bool shrinks = softmax_step(score, rows, shrink);
    if constexpr (drops) drop_weights(s, score_of.dropout, draws, head, rows, j, score);
    if (shrinks) scale(out, shrink);
    add_by_columns<W>(score, P::values(stage), out);
  }
  wait_copies<0>();

  outputs.store(rows, out);
  sync_warp();  // all lanes have read m and l before they are overwritten
  rows.store(m, l, b * s.queries, head);
}

template <int W>
void flash(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
           const AttentionState<float>& state) {
  constexpr Index processors = 132;  // assumed SMs of a GPU; without cap and dropout, R = 2 is used if each SM gets at least one such block
  const auto described = [&]<int R, bool caps, bool drops>() {
    using P = Places<W, R>;
    launch(dev, "attention", {s.batch * s.num_heads * ceil_div(s.queries, P::q_tile), threads, P::bytes}, flash_kernel<W, R, caps, drops>, s,
           ScoreOf<float>(scores, log2_e), fresh, q, k, v, state.o, state.m, state.l);
  };
  with_rule(scores, [&](auto caps, auto drops) {
    if constexpr (!caps() && !drops())
      if (s.batch * s.num_heads * ceil_div(s.queries, Places<W, 2>::q_tile) >= processors) return described.template operator()<2, false, false>();
    described.template operator()<1, caps(), drops()>();
  });
}

}  // namespace

bool attention_by_tensor_cores(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v,
                               bool fresh, AttentionState<float> state) {
  const Index width = std::max(s.head_dim, s.v_head_dim);
  if (std::max(s.queries, s.keys) >= 1 << 30 || width > 128 || s.head_dim % 8 != 0 || s.v_head_dim % 8 != 0) return false;
  for (const auto& x : {q, k, v})
    if (!Global<const bf16>(x).packs<8>()) return false;
  if (!Global<float>(state.o).packs<2>()) return false;
  if (!s.before && scores.cap == 0 && !scores.dropout.drops() && scores.scale > 0 && uses_wgmma())
    attention_by_warpgroups(dev, s, scores.scale, q, k, v, fresh, state);
  else if (width <= 64) flash<64>(dev, s, scores, q, k, v, fresh, state);
  else flash<128>(dev, s, scores, q, k, v, fresh, state);
  return true;
}

}  // namespace gyr::backend
