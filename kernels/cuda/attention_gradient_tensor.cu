// SPDX-License-Identifier: BSD-3-Clause
// Gradients of attention of bf16 by tensor cores. A block takes 64 tokens of a head, each of its four warps 16 of them, and walks over the others
// that they see or that see them; others come by turns into two places, while those before are computed with. One kernel does it twice:
//             own x1, x2    others y1, y2    gradients
//   queries   q, dout       k, v             dq += scale ds k
//   keys      k, v          q, dout          dk += scale ds' q,  dv += p' dout     of all query heads that share the key head, one after the other
// p = exp(x1 y1' scale - lse) and ds = p (x2 y2' - delta) stay in the registers in which a product left them: rows are own tokens, so that they are
// left operands next. Scores are computed twice, which makes seven products in place of five; in return a number has one owner, who adds in one
// order, without atomics and without scratch memory.
#include "kernels/cuda/attention_tensor.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

struct Inputs {
  Global<const std::int32_t> positions;
  Global<const bf16> q, k, v, dout;
  Global<const float> lse, delta;
};

// Others that a token sees or that see it: [from, to). Neither falls from token to token. Tokens of a sequence are counted in 32 bits here.
struct Bounds {
  int from, to;
};

GYR_DEVICE Index hidden(const Heads& s, const Inputs& in, Index b, Index i) {
  return s.visible.hidden(i, in.positions ? Index(in.positions.load(b * s.queries + i)) : Documents::unlimited);
}
GYR_DEVICE Bounds keys_of(const Heads& s, const Inputs& in, Index b, Index i) { return {int(hidden(s, in, b, i)), int(s.visible.seen(i))}; }
GYR_DEVICE Bounds queries_of(const Heads& s, const Inputs& in, Index b, Index j) {
  const Index from = s.visible.causal ? VisibleKeys::within(j + 1 - s.visible.first_seen, s.queries) : 0;
  if (!in.positions) return {int(from), int(s.queries)};
  Index to = from;
  for (Index end = s.queries; to < end;) {  // key j is hidden from `end` on, and not before `to`
    const Index i = (to + end) / 2;
    if (hidden(s, in, b, i) > j) end = i;
    else to = i + 1;
  }
  return {int(from), int(to)};
}

// Of a query: what a score of base 2 loses, infinite where there was no key, and delta.
using Stat = Pack<float, 2>;
GYR_DEVICE Stat stat_of(const Inputs& in, Index row, Index head) {
  const float lse = in.lse.load(row, head), infinity = std::numeric_limits<float>::infinity();
  return {{lse == -infinity ? infinity : lse * log2_e, in.delta.load(row, head)}};
}

template <int W, bool of_keys>
struct Gradient {
  static constexpr int step = W <= 64 ? 64 : 32;  // others at a time; so two blocks share an SM
  static constexpr int other_bytes = Tile<W, step>::bytes, stats_at = 2 * Tile<W>::bytes + 4 * other_bytes;
  static constexpr int stat_bytes = step * int(sizeof(Stat)), shared_bytes = stats_at + (of_keys ? 2 * stat_bytes : 0);
  static constexpr bool kept = !of_keys || W <= 64;  // whether own tokens stay in registers

  // Others from `first` on, of a query head.
  struct Place {
    int head, first;
  };

  const Heads& s;
  const Inputs& in;
  Index b;
  int head, first, end;   // own tokens [first, end)
  int head_end;           // the query head behind the last one
  Bounds all, bounds[2];  // of the block, of this lane's rows
  Stat own_stat[2];       // of queries

  GYR_DEVICE Gradient(const Heads& s, const Inputs& in, Index block) : s(s), in(in) {
    const Index tokens = of_keys ? s.keys : s.queries, heads = of_keys ? s.num_kv_heads : s.num_heads, tiles = ceil_div(tokens, tile);
    const Index at = block % tiles;
    b = block / tiles / heads, head = int(block / tiles % heads);
    first = int(of_keys ? at : tiles - 1 - at) * tile;  // those with most others begin
    end = first + tile < tokens ? first + tile : int(tokens);
    all = {bounds_of(first).from, bounds_of(end - 1).to};
    head_end = of_keys ? (head + 1) * int(s.group()) : head + 1;
    for (int h = 0; h < 2; ++h) {
      bounds[h] = bounds_of(mine(h));
      if (!of_keys) own_stat[h] = stat_of(in, b * s.queries + mine(h), head);
    }
  }
  GYR_DEVICE Bounds bounds_of(Index i) const { return of_keys ? queries_of(s, in, b, i) : keys_of(s, in, b, i); }
  // This lane's row: the last token again where there is none.
  GYR_DEVICE int row(int h) const { return first + warp() * 16 + lane() / quads + h * 8; }
  GYR_DEVICE int mine(int h) const { return row(h) < end ? row(h) : end - 1; }

  GYR_DEVICE static Shared<bf16> own(int i) { return Shared<bf16>(i * Tile<W>::bytes); }
  GYR_DEVICE static Shared<bf16> other(int i, int turn) { return Shared<bf16>(2 * Tile<W>::bytes + (2 * turn + i) * other_bytes); }

  GYR_DEVICE Place begin() const { return {of_keys ? head * int(s.group()) : head, all.from}; }
  GYR_DEVICE bool inside(const Place& p) const { return p.head < head_end; }
  GYR_DEVICE Place next(const Place& p) const { return p.first + step < all.to ? Place{p.head, p.first + step} : Place{p.head + 1, all.from}; }
  // Whether a row of this warp has to do with any of them.
  GYR_DEVICE bool meets(const Place& p) const { return ballot(bounds[0].from < p.first + step && p.first < bounds[1].to) != 0; }

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
  GYR_DEVICE void fetch_own() const {
    if (of_keys) fetch_keys<tile>(first, head, own(0), own(1));
    else fetch_queries<tile>(first, head, own(0), own(1));
  }
  GYR_DEVICE void fetch_others(const Place& p, int turn) const {
    if (of_keys) fetch_queries<step>(p.first, p.head, other(0, turn), other(1, turn));
    else fetch_keys<step>(p.first, p.head / s.group(), other(0, turn), other(1, turn));
  }
  // Of the query that this thread has of the others.
  GYR_DEVICE Stat load_stat(const Place& p) const {
    const Index i = p.first + thread_index();
    if (!of_keys || thread_index() >= step) return {};
    return stat_of(in, b * s.queries + (i < s.queries ? i : s.queries - 1), p.head);
  }
  GYR_DEVICE void store_stat(const Stat& x, int turn) const {
    if (of_keys && thread_index() < step) Shared<Stat>(stats_at + turn * stat_bytes).store(thread_index(), x);
  }

  // Scores become p, and slopes ds.
  GYR_DEVICE void weigh(float scale, const Place& p, int turn, FragmentD (&score)[step / 8], FragmentD (&slope)[step / 8]) const {
    const Shared<Pack<float, 4>> others(stats_at + turn * stat_bytes);
    const bool whole = bounds[1].from <= p.first && p.first + step <= bounds[0].to;  // neither row misses one
    GYR_UNROLL
    for (int n = 0; n < step / 8; ++n) {
      const int column = n * 8 + lane() % quads * 2;
      Pack<float, 4> stat = {};
      if constexpr (of_keys) stat = others.load(column / 2);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, c = i % 2;
        const float lse = of_keys ? stat.at[2 * c] : own_stat[h].at[0], delta = of_keys ? stat.at[2 * c + 1] : own_stat[h].at[1];
        float& w = score[n].at[i];
        w = exp2(w * scale - lse);
        if (!whole && (p.first + column + c < bounds[h].from || bounds[h].to <= p.first + column + c)) w = 0;
        slope[n].at[i] = w * (slope[n].at[i] - delta);
      }
    }
  }
};

// Fragments of own tokens: in registers, or read again at every use.
template <int W, bool kept>
struct Own {
  Shared<bf16> from;
  FragmentA at[kept ? W / 16 : 1];

  GYR_DEVICE explicit Own(const Shared<bf16>& from) : from(from) {
    if constexpr (kept) {
      GYR_UNROLL
      for (int c = 0; c < W; c += 16) at[c / 16] = left_of<W>(from, c);
    }
  }
  GYR_DEVICE FragmentA operator()(int c) const {
    if constexpr (kept) return at[c / 16];
    else return left_of<W>(from, c);
  }
};

// x += factor * sum, of this lane's rows and the columns of a head.
template <int W, class G>
GYR_DEVICE void add_to(const Global<float>& x, const G& of, Index first_row, Index width, float factor, const FragmentD (&sum)[W / 8]) {
  GYR_UNROLL
  for (int n = 0; n < W / 8; ++n) {
    GYR_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Index column = n * 8 + lane() % quads * 2;
      if (of.row(h) >= of.end || column >= width) continue;
      auto v = x.template load_pack<2>(first_row + of.row(h), of.head * width + column);
      for (int c = 0; c < 2; ++c) v.at[c] += factor * sum[n].at[2 * h + c];
      x.template store_pack<2>(first_row + of.row(h), of.head * width + column, v);
    }
  }
}

// d1: dq or dk; d2: dv
template <int W, bool of_keys>
GYR_KERNEL gradient_kernel(Heads s, float scale, Inputs in, Global<float> d1, Global<float> d2) {
  using G = Gradient<W, of_keys>;
  const G of(s, in, block_index());
  if (of.all.from >= of.all.to) return;
  typename G::Place here = of.begin();
  of.fetch_own();
  of.fetch_others(here, 0);
  commit_copies();
  of.store_stat(of.load_stat(here), 0);
  wait_for_copies<0>();
  sync_block();

  const Own<W, G::kept> x1(G::own(0)), x2(G::own(1));
  FragmentD sum1[W / 8] = {}, sum2[of_keys ? W / 8 : 1] = {};
  for (int turn = 0;; turn = 1 - turn) {
    const typename G::Place next = of.next(here);
    const bool more = of.inside(next);
    Stat stat = {};
    if (more) of.fetch_others(next, 1 - turn), stat = of.load_stat(next);
    commit_copies();
    if (of.meets(here)) {
      FragmentD score[G::step / 8] = {}, slope[G::step / 8] = {};
      add_by_rows<W>(x1, G::other(0, turn), score);
      add_by_rows<W>(x2, G::other(1, turn), slope);
      of.weigh(scale * log2_e, here, turn, score, slope);
      if constexpr (of_keys) add_by_columns<W>(score, G::other(1, turn), sum2);
      add_by_columns<W>(slope, G::other(0, turn), sum1);
    }
    if (!more) break;
    of.store_stat(stat, 1 - turn);
    wait_for_copies<0>();
    sync_block();
    here = next;
  }
  add_to<W>(d1, of, of.b * (of_keys ? s.keys : s.queries), s.head_dim, scale, sum1);
  if constexpr (of_keys) add_to<W>(d2, of, of.b * s.keys, s.v_head_dim, 1, sum2);
}

template <int W>
void gradients(Device& dev, const Heads& s, float scale, const Inputs& in, const Global<float>& dq, const Global<float>& dk,
               const Global<float>& dv) {
  launch(dev, "attention_backward", {s.batch * s.num_heads * ceil_div(s.queries, tile), threads, Gradient<W, false>::shared_bytes},
         gradient_kernel<W, false>, s, scale, in, dq, dq);
  launch(dev, "attention_backward", {s.batch * s.num_kv_heads * ceil_div(s.keys, tile), threads, Gradient<W, true>::shared_bytes},
         gradient_kernel<W, true>, s, scale, in, dk, dv);
}

}  // namespace

bool attention_gradients_by_tensor_cores(Device& dev, const Heads& s, double scale, Tensor1<const std::int32_t> positions, Matrix<const bf16> q,
                                         Matrix<const bf16> k, Matrix<const bf16> v, Tensor2<const bf16> dout, Tensor2<const float> lse,
                                         Tensor2<const float> delta, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  const Index width = std::max(s.head_dim, s.v_head_dim);
  if (width > 128 || s.head_dim % 8 != 0 || s.v_head_dim % 8 != 0 || std::max(s.queries, s.keys) >= 1 << 30) return false;
  const Inputs in{positions, q, k, v, dout, lse, delta};
  for (const auto& x : {in.q, in.k, in.v, in.dout})
    if (!x.packs<8>()) return false;
  for (const Global<float> x : {dq, dk, dv})
    if (!x.packs<2>()) return false;
  if (width <= 64) gradients<64>(dev, s, float(scale), in, dq, dk, dv);
  else gradients<128>(dev, s, float(scale), in, dq, dk, dv);
  return true;
}

}  // namespace gyr::backend
