// SPDX-License-Identifier: BSD-3-Clause
// Flash attention, forward, by tensor cores (Dao, 2023): a block takes 64 queries of a head, each of its four warps 16 of them; tiles of 64 keys and
// values come by turns into two places each, while the one before is computed with. Scores never leave registers: the fragments that a product leaves
// them in are those that the next one takes its left operand from.
#include "kernels/cuda/attention_tensor.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

// What a lane has of the softmax of its two rows, lane / 4 and that + 8 of the warp's 16.
struct Rows {
  float top[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}, sum[2] = {0, 0};
  Index hidden[2] = {0, 0}, seen[2] = {0, 0};

  // From the state of rows before `end`. The four lanes of a row have parts of its sum: one begins with the whole.
  GYR_DEVICE void carry_on(const Global<float>& m, const Global<float>& l, Index row, Index end, Index head) {
    for (int h = 0; h < 2; ++h)
      if (row + h * 8 < end) {
        top[h] = m.load(row + h * 8, head) * log2_e;
        sum[h] = lane() % quads > 0 ? 0 : l.load(row + h * 8, head);
      }
  }
  GYR_DEVICE void store(const Global<float>& m, const Global<float>& l, Index row, Index end, Index head) {
    for (int h = 0; h < 2; ++h) {
      for (int with = 1; with < quads; with *= 2) sum[h] += shuffle_xor(sum[h], with);
      if (row + h * 8 >= end || lane() % quads > 0) continue;
      m.store(row + h * 8, head, top[h] * ln_2);
      l.store(row + h * 8, head, sum[h]);
    }
  }
};

// Scores of 16 queries and 64 keys become p; the rows move on. shrink: what sums up to now are multiplied by.
GYR_DEVICE void soften(FragmentD (&s)[tile / 8], const ScoreOf<float>& score_of, Index first_key, Rows& rows, float (&shrink)[2]) {
  float most[2] = {rows.top[0], rows.top[1]};
  for (int n = 0; n < tile / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const Index j = first_key + n * 8 + lane() % quads * 2 + i % 2;
      float& x = s[n].at[i];
      x = rows.hidden[i / 2] <= j && j < rows.seen[i / 2] ? score_of(x) : -std::numeric_limits<float>::infinity();
      most[i / 2] = x > most[i / 2] ? x : most[i / 2];
    }
  for (int h = 0; h < 2; ++h) {
    for (int with = 1; with < quads; with *= 2) {
      const float other = shuffle_xor(most[h], with);
      most[h] = other > most[h] ? other : most[h];
    }
    const float base = most[h] == -std::numeric_limits<float>::infinity() ? 0 : most[h];  // of a row that has met no key
    shrink[h] = exp2(rows.top[h] - base);
    rows.top[h] = most[h], rows.sum[h] *= shrink[h], most[h] = base;
  }
  for (int n = 0; n < tile / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      s[n].at[i] = exp2(s[n].at[i] - most[i / 2]);
      rows.sum[i / 2] += s[n].at[i];
    }
}

// What dropout leaves of p: of queries i and i + 8.
GYR_DEVICE void drop_weights(const Heads& s, const Dropout& dropout, Index b, Index head, Index i, Index first_key, FragmentD (&p)[tile / 8]) {
  GYR_UNROLL
  for (int n = 0; n < tile / 8; ++n) {
    GYR_UNROLL
    for (int at = 0; at < 4; ++at) p[n].at[at] *= s.kept<float>(dropout, b, head, i + at / 2 * 8, first_key + n * 8 + lane() % quads * 2 + at % 2);
  }
}

// A lane's numbers of o: f(row of the two, column of the head, number).
template <int W, class F>
GYR_DEVICE void each_number(FragmentD (&o)[W / 8], const F& f) {
  for (int n = 0; n < W / 8; ++n)
    for (int i = 0; i < 4; ++i) f(i / 2, n * 8 + lane() % quads * 2 + i % 2, o[n].at[i]);
}

template <int W, bool drops>
GYR_KERNEL flash_kernel(Heads s, ScoreOf<float> score_of, bool fresh, Global<const bf16> q, Global<const bf16> k, Global<const bf16> v,
                        Global<float> o, Global<float> m, Global<float> l) {
  const Index tiles = ceil_div(s.queries, tile), head = block_index() / tiles % s.num_heads, b = block_index() / tiles / s.num_heads;
  const Index first = (tiles - 1 - block_index() % tiles) * tile, kv_head = head / s.group();  // those that see most begin
  const Index query_end = (b + 1) * s.queries, first_key_row = b * s.keys, key_end = first_key_row + s.keys;
  const auto place = [](int i) { return Shared<bf16>(i * Tile<W>::bytes); };  // two of k, two of v; q comes first to the second of k
  const auto fetch_keys = [&](Index j, int turn) {
    fetch<W>(k, first_key_row + j, key_end, kv_head * s.head_dim, s.head_dim, place(turn));
    fetch<W>(v, first_key_row + j, key_end, kv_head * s.v_head_dim, s.v_head_dim, place(2 + turn));
  };
  const Index last = first + tile < s.queries ? first + tile : s.queries;
  const Index begin = s.hidden(b, first), end = s.seen(b, last - 1);
  fetch<W>(q, b * s.queries + first, query_end, head * s.head_dim, s.head_dim, place(1));
  commit_copies();
  fetch_keys(begin, 0);
  commit_copies();

  const Index mine = first + warp() * 16 + lane() / quads;
  Rows rows;
  for (int h = 0; h < 2; ++h)
    if (const Index i = mine + h * 8; i < last) rows.hidden[h] = s.hidden(b, i), rows.seen[h] = s.seen(b, i);
  FragmentD out[W / 8] = {};
  if (!fresh) {
    rows.carry_on(m, l, b * s.queries + mine, b * s.queries + last, head);
    each_number<W>(out, [&](int h, Index c, float& x) {
      if (mine + h * 8 < last && c < s.v_head_dim) x = o.load(b * s.queries + mine + h * 8, head * s.v_head_dim + c);
    });
  }

  FragmentA queries[W / 16];
  wait_for_copies<1>();
  sync_block();
  for (int c = 0; c < W; c += 16) queries[c / 16] = left_of<W>(place(1), c);
  sync_block();
  int turn = 0;
  for (Index j = begin; j < end; j += tile, turn = 1 - turn) {
    if (j + tile < end) fetch_keys(j + tile, 1 - turn);
    commit_copies();
    wait_for_copies<1>();
    sync_block();
    FragmentD score[tile / 8] = {};
    float shrink[2];
    add_by_rows<W>([&](int c) { return queries[c / 16]; }, place(turn), score);
    soften(score, score_of, j, rows, shrink);
    if constexpr (drops) drop_weights(s, score_of.dropout, b, head, mine, j, score);
    each_number<W>(out, [&](int h, Index, float& x) { x *= shrink[h]; });
    add_by_columns<W>(score, place(2 + turn), out);
    sync_block();
  }
  wait_for_copies<0>();

  each_number<W>(out, [&](int h, Index c, float& x) {
    if (mine + h * 8 < last && c < s.v_head_dim) o.store(b * s.queries + mine + h * 8, head * s.v_head_dim + c, x);
  });
  sync_warp();  // all have read m and l
  rows.store(m, l, b * s.queries + mine, b * s.queries + last, head);
}

template <int W>
void flash(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
           const AttentionState<float>& state) {
  with_dropout(scores.dropout, [&](auto drops) {
    launch(dev, "attention", {s.batch * s.num_heads * ceil_div(s.queries, tile), threads, 4 * Tile<W>::bytes}, flash_kernel<W, drops()>, s,
           ScoreOf<float>(scores, log2_e), fresh, q, k, v, state.o, state.m, state.l);
  });
}

}  // namespace

bool attention_by_tensor_cores(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v,
                               bool fresh, AttentionState<float> state) {
  const Index width = std::max(s.head_dim, s.v_head_dim);
  if (width > 128 || s.head_dim % 8 != 0 || s.v_head_dim % 8 != 0) return false;
  for (const auto& x : {q, k, v})
    if (!Global<const bf16>(x).packs<8>()) return false;
  if (width <= 64) flash<64>(dev, s, scores, q, k, v, fresh, state);
  else flash<128>(dev, s, scores, q, k, v, fresh, state);
  return true;
}

}  // namespace gyr::backend
