// SPDX-License-Identifier: BSD-3-Clause
// Flash attention, forward, by tensor cores (Dao, 2023): each of the four warps of a block takes 16 R queries of a head; tiles of 64 keys and values
// come by turns into two places each, while the one before is computed with. Scores never leave registers: the fragments that a product leaves them
// in are those that the next one takes its left operand from. With R = 2 what is read of keys and values serves two fragments, and shared memory
// keeps pace with the tensor cores; a row has the same bits with either.
#include "kernels/cuda/attention_tensor.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// A warp's queries, and what a lane has of the softmax of its rows: row lane / 4 and that + 8 of each 16. Tokens of a sequence are counted in 32
// bits.
template <int R>
struct Rows {
  int first, end;                  // of the block's queries; first is the warp's own
  int all_from, all_to, from, to;  // keys that every one sees, that any one sees
  float top[2 * R], sum[2 * R] = {};

  // Neither end of what a query sees falls from token to token.
  GYR_DEVICE Rows(const Heads& s, Index b, int first, int end) : first(first), end(end) {
    const int one = first < end ? first : end - 1, other = first + 16 * R < end ? first + 16 * R - 1 : end - 1;
    from = int(s.hidden(b, one)), all_to = int(s.seen(b, one)), all_from = int(s.hidden(b, other)), to = int(s.seen(b, other));
    if (first >= end) to = 0;  // a warp without queries
    for (float& x : top) x = -infinity;
  }
  GYR_DEVICE int row(int h) const { return first + lane() / quads + h * 8; }
  GYR_DEVICE bool there(int h) const { return row(h) < end; }
  GYR_DEVICE int here(int h) const { return there(h) ? row(h) : end - 1; }  // the last one again where there is none

  // The four lanes of a row have parts of its sum: one begins with the whole.
  GYR_DEVICE void carry_on(const Global<float>& m, const Global<float>& l, Index first_row, Index head) {
    for (int h = 0; h < 2 * R; ++h)
      if (there(h)) {
        top[h] = m.load(first_row + row(h), head) * log2_e;
        sum[h] = lane() % quads > 0 ? 0 : l.load(first_row + row(h), head);
      }
  }
  GYR_DEVICE void store(const Global<float>& m, const Global<float>& l, Index first_row, Index head) {
    for (int h = 0; h < 2 * R; ++h) {
      for (int with = 1; with < quads; with *= 2) sum[h] += shuffle_xor(sum[h], with);
      if (!there(h) || lane() % quads > 0) continue;
      m.store(first_row + row(h), head, top[h] * ln_2);
      l.store(first_row + row(h), head, sum[h]);
    }
  }
  GYR_DEVICE bool meets(int first_key) const { return first_key < to && from < first_key + tile; }
  GYR_DEVICE bool sees_all(int first_key) const { return all_from <= first_key && first_key + tile <= all_to; }
};

// Minus infinity where a query does not see a key.
template <int R>
GYR_DEVICE void hide(const Heads& heads, Index b, const Rows<R>& rows, int first_key, FragmentD (&s)[R][tile / 8]) {
  GYR_UNROLL
  for (int h = 0; h < 2 * R; ++h) {
    const int lane_key = first_key + lane() % quads * 2, hidden = int(heads.hidden(b, rows.here(h))) - lane_key,
              seen = int(heads.seen(b, rows.here(h))) - lane_key;
    GYR_UNROLL
    for (int n = 0; n < tile / 8; ++n) {
      GYR_UNROLL
      for (int c = 0; c < 2; ++c)
        if (const int j = n * 8 + c; j < hidden || seen <= j) s[h / 2][n].at[h % 2 * 2 + c] = -infinity;
    }
  }
}

// Scores of 16 R queries and 64 keys become p; the rows move on. shrink: what sums up to now are multiplied by; whether any is not 1.
template <int R>
GYR_DEVICE bool soften(FragmentD (&s)[R][tile / 8], Rows<R>& rows, float (&shrink)[2 * R]) {
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
    const float base = most == -infinity ? 0 : most;  // of a row that has met no key
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

template <int W, int R>
GYR_DEVICE void scale(FragmentD (&o)[R][W], const float (&by)[2 * R]) {
  GYR_UNROLL
  for (int r = 0; r < R; ++r) {
    GYR_UNROLL
    for (int n = 0; n < W; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) o[r][n].at[i] *= by[2 * r + i / 2];
    }
  }
}

// What dropout leaves of p.
template <int R>
GYR_DEVICE void drop_weights(const Heads& s, const Dropout& dropout, Index b, Index head, const Rows<R>& rows, int first_key,
                             FragmentD (&p)[R][tile / 8]) {
  GYR_UNROLL
  for (int r = 0; r < R; ++r) {
    GYR_UNROLL
    for (int n = 0; n < tile / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i)
        p[r][n].at[i] *= s.kept<float>(dropout, b, head, rows.row(2 * r + i / 2), first_key + n * 8 + lane() % quads * 2 + i % 2);
    }
  }
}

// What a block of keys changes of o (rows, H V): this lane's numbers of a head, from memory or there.
template <int W, int R>
struct Outputs {
  const Global<float>& o;
  Index first_row, first_column;
  int width;

  GYR_DEVICE void load(const Rows<R>& rows, FragmentD (&out)[R][W / 8]) const {
    each(rows, [&](const Global<float>& row, int h, int n) {
      const auto x = row.load_pack<2>(0, n * 8);
      out[h / 2][n].at[h % 2 * 2] = x.at[0], out[h / 2][n].at[h % 2 * 2 + 1] = x.at[1];
    });
  }
  GYR_DEVICE void store(const Rows<R>& rows, const FragmentD (&out)[R][W / 8]) const {
    each(rows, [&](const Global<float>& row, int h, int n) {
      row.store_pack<2>(0, n * 8, {{out[h / 2][n].at[h % 2 * 2], out[h / 2][n].at[h % 2 * 2 + 1]}});
    });
  }

 private:
  template <class F>
  GYR_DEVICE void each(const Rows<R>& rows, const F& f) const {
    const int column = lane() % quads * 2;
    GYR_UNROLL
    for (int h = 0; h < 2 * R; ++h) {
      if (!rows.there(h)) continue;
      const Global<float> row = o.part(first_row + rows.row(h), first_column + column);
      GYR_UNROLL
      for (int n = 0; n < W / 8; ++n)
        if (n * 8 + column < width) f(row, h, n);
    }
  }
};

template <int W, int R>
struct Places {
  static constexpr int own = 4 * 16 * R, bytes = Tile<W, own>::bytes + 4 * Tile<W>::bytes;
  GYR_DEVICE static Shared<bf16> queries() { return Shared<bf16>(0); }
  GYR_DEVICE static Shared<bf16> keys(int turn) { return Shared<bf16>(Tile<W, own>::bytes + turn * Tile<W>::bytes); }
  GYR_DEVICE static Shared<bf16> values(int turn) { return keys(2 + turn); }
};

template <int W, int R, bool caps, bool drops>
GYR_KERNEL flash_kernel(Heads s, ScoreOf<float> score_of, bool fresh, Global<const bf16> q, Global<const bf16> k, Global<const bf16> v,
                        Global<float> o, Global<float> m, Global<float> l) {
  using P = Places<W, R>;
  const int tiles = int(ceil_div(s.queries, P::own)), at = int(block_index() / tiles), head = at % int(s.num_heads);
  const int b = at / int(s.num_heads);
  const int first = (tiles - 1 - int(block_index() % tiles)) * P::own;  // those that see most begin
  const int last = first + P::own < s.queries ? first + P::own : int(s.queries);
  const int begin = int(s.hidden(b, first)), end = int(s.seen(b, last - 1));
  const auto fetch_keys = [&](int j, int turn) {
    const Index first_key_row = b * s.keys, kv_head = head / int(s.group());
    fetch<W>(k, first_key_row + j, first_key_row + s.keys, kv_head * s.head_dim, s.head_dim, P::keys(turn));
    fetch<W>(v, first_key_row + j, first_key_row + s.keys, kv_head * s.v_head_dim, s.v_head_dim, P::values(turn));
  };
  fetch<W, P::own>(q, b * s.queries + first, (b + 1) * s.queries, head * s.head_dim, s.head_dim, P::queries());
  fetch_keys(begin, 0);
  commit_copies();

  Rows<R> rows(s, b, first + warp() * 16 * R, last);
  FragmentD out[R][W / 8] = {};
  const Outputs<W, R> outputs{o, b * s.queries, head * s.v_head_dim, int(s.v_head_dim)};
  if (!fresh) {
    rows.carry_on(m, l, b * s.queries, head);
    outputs.load(rows, out);
  }
  int turn = 0;
  for (int j = begin; j < end; j += tile, turn = 1 - turn) {
    wait_for_copies<0>();
    sync_block();  // what was computed with before may be overwritten
    if (j + tile < end) fetch_keys(j + tile, 1 - turn);
    commit_copies();
    if (!rows.meets(j)) continue;
    FragmentD score[R][tile / 8] = {};
    float shrink[2 * R];
    add_by_rows<W>([&](int r, int c) { return left_at<W>(P::queries(), (warp() * R + r) * 16, c); }, P::keys(turn), score);
    GYR_UNROLL
    for (int r = 0; r < R; ++r) {
      GYR_UNROLL
      for (int n = 0; n < tile / 8; ++n) {
        GYR_UNROLL
        for (float& x : score[r][n].at) x = score_of.of<caps>(x);
      }
    }
    if (!rows.sees_all(j)) hide(s, b, rows, j, score);
    const bool shrinks = soften(score, rows, shrink);
    if constexpr (drops) drop_weights(s, score_of.dropout, b, head, rows, j, score);
    if (shrinks) scale(out, shrink);
    add_by_columns<W>(score, P::values(turn), out);
  }
  wait_for_copies<0>();

  outputs.store(rows, out);
  sync_warp();  // all have read m and l
  rows.store(m, l, b * s.queries, head);
}

template <int W>
void flash(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
           const AttentionState<float>& state) {
  constexpr Index processors = 132;  // of a GPU, which have a large block each at least
  const auto told = [&]<int R, bool caps, bool drops>() {
    using P = Places<W, R>;
    launch(dev, "attention", {s.batch * s.num_heads * ceil_div(s.queries, P::own), threads, P::bytes}, flash_kernel<W, R, caps, drops>, s,
           ScoreOf<float>(scores, log2_e), fresh, q, k, v, state.o, state.m, state.l);
  };
  with_rule(scores, [&](auto caps, auto drops) {
    if constexpr (!caps() && !drops())
      if (s.batch * s.num_heads * ceil_div(s.queries, Places<W, 2>::own) >= processors) return told.template operator()<2, false, false>();
    told.template operator()<1, caps(), drops()>();
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
  if (width <= 64) flash<64>(dev, s, scores, q, k, v, fresh, state);
  else flash<128>(dev, s, scores, q, k, v, fresh, state);
  return true;
}

}  // namespace gyr::backend
