// SPDX-License-Identifier: BSD-3-Clause
// Attention gradients in bf16 on tensor cores (mma.sync). A block owns 64 tokens of a head, 16 for each of its four warps. It loops over
// tiles of the other tokens that its own tokens see, or that see them. These tiles pass through a two-stage buffer: cp.async loads the
// next tile while the block computes with the current one. The same code yields two kernels:
//             block x1, x2  step y1, y2      gradients
//   queries   q, dout       k, v             dq += scale ds k
//   keys      k, v          q, dout          dk += scale ds' q,  dv += p' dout     over all query heads of the key head, in order
// p = exp(S - lse), S = scale x1 y1' (soft-capped if there is a cap) and ds = p (x2 y2' - delta) (1 - (S / cap)^2). Both stay in the
// accumulator registers of their GEMMs. Their rows are own tokens, so they are the left operands of the next GEMMs. Scores are computed
// twice, which makes seven GEMMs instead of five. In return each gradient element is accumulated by one block in a fixed order, without
// atomics. If there are few keys, the query heads of a key head are split over several blocks, whose partial sums are added afterwards.
#include "kernels/cuda/attention/attention_gradient.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

template <int W, bool of_keys>
struct Gradient {
  static constexpr int step = W <= 64 ? 64 : 32;  // tokens per tile of the other operand; 32 for wide heads, so that two blocks fit on an SM
  static constexpr int step_bytes = Tile<W, step>::bytes, stats_at = 2 * Tile<W>::bytes + 4 * step_bytes;
  static constexpr int stat_bytes = step * int(sizeof(Stat)), draws_at = stats_at + (of_keys ? 2 * stat_bytes : 0);
  // Dropout's random-number state is in shared memory, because registers are scarce.
  static constexpr int shared_bytes(bool drops) { return draws_at + (drops ? int(sizeof(Draws)) : 0); }
  // True if fragments of own tokens stay in registers. Dropout needs some of these registers.
  static constexpr bool kept(bool drops) { return !of_keys || (W <= 64 && !drops); }

  // Tile of other tokens (keys if the block owns queries, else queries): starts at token `first` of query head `head`.
  struct Place {
    int head, first;
  };

  const Heads& s;
  const Inputs& in;
  Index b;
  int head, first, end;  // tokens [first, end) of the sequence, which this block owns
  int part, heads, parts;  // index of this block's part of the query heads, query heads per part, number of parts
  Bounds all, bounds[2];  // token ranges of the other operand: of the block, and of this lane's two rows
  Stat row_stat[2];  // log-sum-exp and delta of this lane's two rows, if the block owns queries

  GYR_DEVICE Gradient(const Heads& s, const Inputs& in, Index parts, Index block)
      : s(s), in(in), heads(of_keys ? int(s.group() / parts) : 1), parts(int(parts)) {
    const Index tokens = of_keys ? s.keys : s.queries, block_heads = of_keys ? s.num_kv_heads : s.num_heads, tiles = ceil_div(tokens, tile);
    const Index at = block / (s.batch * block_heads * parts), rest = block % (s.batch * block_heads * parts);
    b = rest / (block_heads * parts), head = int(rest / parts % block_heads), part = int(rest % parts);
    first = int(of_keys ? at : tiles - 1 - at) * tile;  // blocks with the most visible keys start first
    end = first + tile < tokens ? first + tile : int(tokens);
    all = {bounds_of(first).from, bounds_of(end - 1).to};
    for (int h = 0; h < 2; ++h) {
      bounds[h] = bounds_of(mine(h));
      if (!of_keys) row_stat[h] = stat_of(in, b * s.queries + mine(h), head);
    }
  }
  GYR_DEVICE Bounds bounds_of(Index i) const { return of_keys ? queries_of(s, b, i) : keys_of(s, b, i); }
  // Token of this lane's fragment row h. mine() clamps it to the last own token.
  GYR_DEVICE int row(int h) const { return first + warp() * 16 + lane() / quads + h * 8; }
  GYR_DEVICE int mine(int h) const { return row(h) < end ? row(h) : end - 1; }

  GYR_DEVICE static Shared<bf16> block_tile(int i) { return Shared<bf16>(i * Tile<W>::bytes); }
  GYR_DEVICE static Shared<bf16> step_tile(int i, int stage) { return Shared<bf16>(2 * Tile<W>::bytes + (2 * stage + i) * step_bytes); }

  GYR_DEVICE Place begin() const { return {of_keys ? (head * parts + part) * heads : head, all.from}; }
  GYR_DEVICE bool inside(const Place& p) const { return p.head < begin().head + heads; }
  GYR_DEVICE Place next(const Place& p) const { return p.first + step < all.to ? Place{p.head, p.first + step} : Place{p.head + 1, all.from}; }
  // True if any row of this warp has a visible pair with the tile.
  GYR_DEVICE bool overlaps(const Place& p) const {
    return first + warp() * 16 < end && ballot(bounds[0].from < p.first + step && p.first < bounds[1].to) != 0;
  }

  template <int rows>
  GYR_DEVICE void fetch_queries(Index i, Index query_head, const Shared<bf16>& q, const Shared<bf16>& dout) const {
    fetch<W, rows>(in.q, b * s.queries + i, (b + 1) * s.queries, query_head * s.head_dim, s.head_dim, q);
    fetch<W, rows>(in.dout, b * s.queries + i, (b + 1) * s.queries, query_head * s.v_head_dim, s.v_head_dim, dout);
  }
  template <int rows>
  GYR_DEVICE void fetch_keys(Index j, Index kv_head, const Shared<bf16>& k, const Shared<bf16>& v) const {
    fetch<W, rows>(in.k, b * s.keys + j, (b + 1) * s.keys, kv_head * s.head_dim, s.head_dim, k);
    fetch<W, rows>(in.v, b * s.keys + j, (b + 1) * s.keys, kv_head * s.v_head_dim, s.v_head_dim, v);
  }
  GYR_DEVICE void fetch_block_tiles() const {
    if (of_keys) fetch_keys<tile>(first, head, block_tile(0), block_tile(1));
    else fetch_queries<tile>(first, head, block_tile(0), block_tile(1));
  }
  GYR_DEVICE void fetch_step_tiles(const Place& p, int stage) const {
    if (of_keys) fetch_queries<step>(p.first, p.head, step_tile(0, stage), step_tile(1, stage));
    else fetch_keys<step>(p.first, p.head / s.group(), step_tile(0, stage), step_tile(1, stage));
  }
  // Log-sum-exp and delta of the query that this thread loads for the tile of other tokens (zeros if other tokens are
  // keys).
  GYR_DEVICE Stat load_stat(const Place& p) const {
    const Index i = p.first + thread_index();
    if (!of_keys || thread_index() >= step) return {};
    return stat_of(in, b * s.queries + (i < s.queries ? i : s.queries - 1), p.head);
  }
  GYR_DEVICE void store_stat(const Stat& x, int stage) const {
    if (of_keys && thread_index() < step) Shared<Stat>(stats_at + stage * stat_bytes).store(thread_index(), x);
  }

  // Dropout factor of the attention weight between this lane's row h and the other token in `column` of the tile.
  GYR_DEVICE float weight_left(const Dropout& dropout, const Draws& draws, const Place& p, int h, int column) const {
    const int block_tile = row(h), other = p.first + column;
    return of_keys ? s.template kept<float>(dropout, draws, p.head, other, block_tile)
                   : s.template kept<float>(dropout, draws, head, block_tile, other);
  }

  // In place: scores become p times the dropout factor, and slopes (dp) become ds.
  template <bool caps, bool drops>
  GYR_DEVICE void weigh(const ScoreOf<float>& score_of, const Place& p, int stage, FragmentD (&score)[step / 8], FragmentD (&slope)[step / 8]) const {
    const Shared<Pack<float, 4>> stats(stats_at + stage * stat_bytes);
    GYR_UNROLL
    for (int n = 0; n < step / 8; ++n) {
      const int column = n * 8 + lane() % quads * 2;
      Pack<float, 4> stat = {};
      if constexpr (of_keys) stat = stats.load(column / 2);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, c = i % 2;
        const float lse = of_keys ? stat.at[2 * c] : row_stat[h].at[0], delta = of_keys ? stat.at[2 * c + 1] : row_stat[h].at[1];
        float& w = score[n].at[i];
        const float s = score_of.template of<caps>(w);
        w = exp2(s - lse);
        if constexpr (drops) {
          const float kept = weight_left(score_of.dropout, Shared<Draws>(draws_at).load(0), p, h, column + c);
          slope[n].at[i] = w * (kept * slope[n].at[i] - delta) * score_of.template slope<caps>(s);
          w *= kept;
        } else slope[n].at[i] = w * (slope[n].at[i] - delta) * score_of.template slope<caps>(s);
      }
    }
    if (bounds[1].from > p.first || p.first + step > bounds[0].to) hide(p, score, slope);
  }
  // Sets p and ds to zero for pairs that the mask hides.
  GYR_DEVICE void hide(const Place& p, FragmentD (&score)[step / 8], FragmentD (&slope)[step / 8]) const {
    GYR_UNROLL
    for (int n = 0; n < step / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int other = p.first + n * 8 + lane() % quads * 2 + i % 2;
        if (other < bounds[i / 2].from || bounds[i / 2].to <= other) score[n].at[i] = slope[n].at[i] = 0;
      }
    }
  }
};

// A fragments of own tokens: kept in registers, or loaded again from shared memory at every use.
template <int W, bool kept>
struct BlockOperand {
  Shared<bf16> from;
  FragmentA at[kept ? W / 16 : 1];

  GYR_DEVICE explicit BlockOperand(const Shared<bf16>& from) : from(from) {
    if constexpr (kept) {
      GYR_UNROLL
      for (int c = 0; c < W; c += 16) at[c / 16] = left_of<W>(from, c);
    }
  }
  GYR_DEVICE FragmentA operator()(int, int c) const {
    if constexpr (kept) return at[c / 16];
    else return left_of<W>(from, c);
  }
};

// Accumulates the gradients of a block, without the factor `scale`.
template <bool caps, bool drops, int W, bool of_keys, int F>
GYR_DEVICE void walk(const Gradient<W, of_keys>& of, const ScoreOf<float>& score_of, FragmentD (&sum1)[1][W / 8], FragmentD (&sum2)[1][F]) {
  using G = Gradient<W, of_keys>;
  typename G::Place here = of.begin();
  of.fetch_block_tiles();
  of.fetch_step_tiles(here, 0);
  commit_copies();
  of.store_stat(of.load_stat(here), 0);
  if constexpr (drops)
    if (thread_index() == 0) Shared<Draws>(G::draws_at).store(0, of.s.draws_of(score_of.dropout, score_of.dropout.draws(), of.b));
  wait_copies<0>();
  sync_block();

  const BlockOperand<W, G::kept(drops)> x1(G::block_tile(0)), x2(G::block_tile(1));
  for (int stage = 0;; stage = 1 - stage) {
    const typename G::Place next = of.next(here);
    const bool more = of.inside(next);
    Stat stat = {};
    if (more) of.fetch_step_tiles(next, 1 - stage), stat = of.load_stat(next);
    commit_copies();
    if (of.overlaps(here)) {
      FragmentD score[1][G::step / 8] = {}, slope[1][G::step / 8] = {};
      add_by_rows<W>(x1, G::step_tile(0, stage), score);
      add_by_rows<W>(x2, G::step_tile(1, stage), slope);
      of.template weigh<caps, drops>(score_of, here, stage, score[0], slope[0]);
      if constexpr (of_keys) add_by_columns<W>(score, G::step_tile(1, stage), sum2);
      add_by_columns<W>(slope, G::step_tile(0, stage), sum1);
    }
    if (!more) return;
    of.store_stat(stat, 1 - stage);
    wait_copies<0>();
    sync_block();
    here = next;
  }
}

template <int W, bool caps, bool drops>
GYR_KERNEL gradient_of_queries_kernel(Heads s, float scale, ScoreOf<float> score_of, Inputs in, Global<float> dq) {
  const Gradient<W, false> of(s, in, 1, block_index());
  if (of.all.from >= of.all.to) return;
  FragmentD sum[1][W / 8] = {}, none[1][1] = {};
  walk<caps, drops>(of, score_of, sum, none);
  store<W>(dq, true, of, of.b * s.queries, s.head_dim, scale, sum);
}

// With one part, adds to dk and dv. With several parts, writes the partial sums of each part.
template <int W, bool caps, bool drops>
GYR_KERNEL gradient_of_keys_kernel(Heads s, float scale, ScoreOf<float> score_of, Inputs in, Index parts, Global<float> dk, Global<float> dv) {
  const Gradient<W, true> of(s, in, parts, block_index());
  FragmentD key_sum[1][W / 8] = {}, value_sum[1][W / 8] = {};
  if (of.all.from < of.all.to) walk<caps, drops>(of, score_of, key_sum, value_sum);
  const Index first_row = (of.part * s.batch + of.b) * s.keys;
  store<W>(dk, parts == 1, of, first_row, s.head_dim, scale, key_sum);
  store<W>(dv, parts == 1, of, first_row, s.v_head_dim, 1, value_sum);
}

// x += the sum of the partial results, in the order of parts.
template <int N>
GYR_KERNEL add_parts_kernel(Index parts, Global<const float> partial, Global<float> x) {
  each_row(x.rows(), [&](Index r) {
    each_column<N>(x.columns(), [&](Index c) {
      auto v = x.template load_pack<N>(r, c);
      for (Index p = 0; p < parts; ++p) {
        const auto more = partial.template load_pack<N>(p * x.rows() + r, c);
        for (int i = 0; i < N; ++i) v.at[i] += more.at[i];
      }
      x.template store_pack<N>(r, c, v);
    });
  });
}

template <int W>
void gradients(Device& dev, const Heads& s, const ScoreRule& scores, const Inputs& in, const KeyGradientParts& parts, const Global<float>& dq,
               const Global<float>& dk, const Global<float>& dv) {
  const Index blocks = s.batch * s.num_kv_heads * ceil_div(s.keys, tile) * parts.count;
  const bool unsplit = parts.count == 1;
  const ScoreOf<float> score_of(scores, log2_e);
  if (scores.cap == 0 && !scores.dropout.drops() && uses_wgmma())
    attention_gradients_by_warpgroups(dev, s, scores.scale, in, parts.count, dq, unsplit ? dk : Global<float>(parts.dk),
                                      unsplit ? dv : Global<float>(parts.dv));
  else
    with_rule(scores, [&](auto caps, auto drops) {
      launch(dev, "attention_backward", {s.batch * s.num_heads * ceil_div(s.queries, tile), threads, Gradient<W, false>::shared_bytes(drops())},
             gradient_of_queries_kernel<W, caps(), drops()>, s, float(scores.scale), score_of, in, dq);
      launch(dev, "attention_backward", {blocks, threads, Gradient<W, true>::shared_bytes(drops())}, gradient_of_keys_kernel<W, caps(), drops()>, s,
             float(scores.scale), score_of, in, parts.count, unsplit ? dk : Global<float>(parts.dk), unsplit ? dv : Global<float>(parts.dv));
    });
  if (unsplit) return;
  const auto add = [&](const Global<const float>& partial, const Global<float>& x) {
    with_packs<float>([&](auto n) { launch(dev, "attention_backward", grid_of_rows(x), add_parts_kernel<n()>, parts.count, partial, x); }, partial,
                      x);
  };
  add(parts.dk, dk), add(parts.dv, dv);
}

bool widths_fit(const Heads& s) { return std::max(s.head_dim, s.v_head_dim) <= 128 && s.head_dim % 8 == 0 && s.v_head_dim % 8 == 0; }

}  // namespace

KeyGradientParts::KeyGradientParts(Arena& scratch, const Heads& s, Index count) : count(count) {
  if (count == 1) return;
  dk = scratch.tensor<float>(count * s.batch * s.keys, s.num_kv_heads * s.head_dim);
  dv = scratch.tensor<float>(count * s.batch * s.keys, s.num_kv_heads * s.v_head_dim);
}

Index KeyGradientParts::enough(const Heads& s) {
  constexpr Index blocks = 512, keys = 128;  // blocks: target, two waves on 132 SMs with two blocks each, or four with one each; keys: keys per block
  if (!widths_fit(s)) return 1;
  for (Index count = 1; count < s.group(); ++count)
    if (s.group() % count == 0 && count * s.batch * s.num_kv_heads * ceil_div(s.keys, keys) >= blocks) return count;
  return s.group();
}

bool attention_gradients_by_tensor_cores(Device& dev, const Heads& s, const ScoreRule& scores, Matrix<const bf16> q, Matrix<const bf16> k,
                                         Matrix<const bf16> v, Tensor2<const bf16> dout, Tensor2<const float> lse, Tensor2<const float> delta,
                                         const KeyGradientParts& parts, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  if (!widths_fit(s) || std::max(s.queries, s.keys) >= 1 << 30) return false;
  const Inputs in{q, k, v, dout, lse, delta};
  for (const auto& x : {in.q, in.k, in.v, in.dout})
    if (!x.packs<8>()) return false;
  for (const Global<float> x : {dq, dk, dv})
    if (!x.packs<2>()) return false;
  if (std::max(s.head_dim, s.v_head_dim) <= 64) gradients<64>(dev, s, scores, in, parts, dq, dk, dv);
  else gradients<128>(dev, s, scores, in, parts, dq, dk, dv);
  return true;
}

}  // namespace gyr::backend
