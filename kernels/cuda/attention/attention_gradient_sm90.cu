// SPDX-License-Identifier: BSD-3-Clause
// Attention gradients in bf16 on Hopper (wgmma). The algorithm is that of attention_gradient_sm80.cu: each gradient
// element is accumulated by one block. A block owns 128 tokens of a head, 64 for each of two consumer warpgroups. The
// four warps of the producer warpgroup load tiles of the other tokens by cp.async: each warp loads one of the two
// operands of every second tile, once both consumers have released the stage. While one consumer computes exponentials,
// the other one's wgmma runs.
#include "kernels/cuda/attention/attention_gradient.hpp"
#include "kernels/cuda/machine/wgmma_tiles.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

constexpr int groups = 2, group_rows = 64, block_rows = groups * group_rows;
constexpr int all_threads = (1 + groups) * group_threads;
// Registers per thread of the producer and of the consumers (setmaxnreg). A block starts with 168 registers per thread.
constexpr int producer_registers = 56, consumer_registers = 224;
static_assert(producer_registers + groups * consumer_registers <= (1 + groups) * 168);

// Named barriers: a stage is full (one barrier per consumer), a stage is empty, and the own tokens are in shared
// memory.
constexpr int most_places = 4;
GYR_FUNCTION constexpr int full(int place, int group) { return 1 + groups * place + group; }
GYR_FUNCTION constexpr int empty(int place) { return 1 + groups * most_places + place; }
constexpr int block_tiles_ready = 1 + (groups + 1) * most_places;
constexpr int computing = groups * group_threads, full_threads = 2 * warp_size + group_threads;
[[maybe_unused]] constexpr int empty_threads = 2 * warp_size + computing;

template <int W, bool of_keys>
struct Gradient {
  // tokens per tile of the other operand, and stages of the buffer
  static constexpr int step = of_keys ? 64 : 128, places = of_keys ? most_places : 2;
  using BlockTile = GroupTile<W, block_rows>;
  using StepTile = GroupTile<W, step>;
  static constexpr int stats_at = 2 * BlockTile::bytes + 2 * places * StepTile::bytes, stat_bytes = step * int(sizeof(Stat));
  static constexpr int shared_bytes = stats_at + (of_keys ? places * stat_bytes : 0);

  // Tile of other tokens (keys if the block owns queries, else queries): starts at token `first` of query head `head`.
  struct Place {
    int head, first;
  };

  const Heads& s;
  const Inputs& in;
  int b, head, first, end;  // tokens [first, end) of sequence b, which this block owns
  int part, heads;  // index of this block's part of the query heads, and query heads per part
  int first_head;  // first query head of this part
  Bounds all;  // range of the other operand's tokens with a visible pair in this block

  GYR_DEVICE Gradient(const Heads& s, const Inputs& in, int parts, int block) : s(s), in(in) {
    const int block_heads = int(of_keys ? s.num_kv_heads : s.num_heads), group = int(s.num_heads) / int(s.num_kv_heads);
    const int tokens = int(of_keys ? s.keys : s.queries), tiles = int(ceil_div(tokens, block_rows));
    const int at = block / (int(s.batch) * block_heads * parts), rest = block % (int(s.batch) * block_heads * parts);
    b = rest / (block_heads * parts), head = rest / parts % block_heads, part = rest % parts;
    heads = of_keys ? group / parts : 1, first_head = of_keys ? head * group + part * heads : head;
    first = (of_keys ? at : tiles - 1 - at) * block_rows;  // blocks with the most visible keys start first
    end = first + block_rows < tokens ? first + block_rows : tokens;
    all = {bounds_of(first).from, bounds_of(end - 1).to};
  }
  GYR_DEVICE Bounds bounds_of(int i) const { return of_keys ? queries_of(s, b, i) : keys_of(s, b, i); }

  GYR_DEVICE static BlockTile block_tile(int i) { return BlockTile(i * BlockTile::bytes); }
  GYR_DEVICE static StepTile step_tile(int i, int place) { return StepTile(2 * BlockTile::bytes + (2 * place + i) * StepTile::bytes); }
  GYR_DEVICE static Shared<Stat> stats(int place) { return Shared<Stat>(stats_at + place * stat_bytes); }

  GYR_DEVICE int tiles() const { return all.from < all.to ? heads * int(ceil_div(all.to - all.from, step)) : 0; }
  GYR_DEVICE Place begin() const { return {first_head, all.from}; }
  GYR_DEVICE Place next(const Place& p) const { return p.first + step < all.to ? Place{p.head, p.first + step} : Place{p.head + 1, all.from}; }

  // Loads q or k (i = 0), or dout or v (i = 1), by cp.async: `rows` tokens from token `from` on, into row `to` of the
  // tile. `threads` threads take part, and this one has index t.
  template <int i, bool queries, int rows, int threads, class T>
  GYR_DEVICE void fetch_tokens(int from, int of_head, const T& tile, int to, int t) const {
    const int width = int(i == 0 ? s.head_dim : s.v_head_dim);
    const Index row = b * (queries ? s.queries : s.keys), rows_end = row + (queries ? s.queries : s.keys);
    if constexpr (queries) fetch<rows, threads>(i == 0 ? in.q : in.dout, row + from, rows_end, of_head * width, width, tile, to, t);
    else fetch<rows, threads>(i == 0 ? in.k : in.v, row + from, rows_end, of_head * width, width, tile, to, t);
  }

  // Producer: one warp loads every second tile of y1 (i = 0) or y2 (i = 1).
  template <int i>
  GYR_DEVICE void load_tile() const {
    const int parity = warp() / 2, count = tiles(), kv_group = int(s.num_heads) / int(s.num_kv_heads);
    Place p = parity > 0 ? next(begin()) : begin();
    for (int t = parity; t < count; t += 2, p = next(next(p))) {
      const int place = t % places;
      if (t >= places) sync_named_barrier(empty(place), empty_threads);
      fetch_tokens<i, of_keys, step, warp_size>(p.first, of_keys ? p.head : p.head / kv_group, step_tile(i, place), 0, lane());
      commit_copies();
      if constexpr (of_keys && i == 0) {
        for (int n = lane(); n < step; n += warp_size) {
          const Index query = p.first + n < s.queries ? p.first + n : s.queries - 1;
          stats(place).store(n, stat_of(in, b * s.queries + query, p.head));
        }
      }
      wait_copies<0>();
      fence_async_proxy();
      for (int g = 0; g < groups; ++g) arrive_at_barrier(full(place, g), full_threads);
    }
  }
};

// Consumer: the 64 own tokens of one warpgroup.
template <int W, bool of_keys>
struct Tokens {
  using G = Gradient<W, of_keys>;
  using Scores = FragmentD[G::step / 8];
  const G& of;
  float scale;  // softmax scale times log2 e
  int group, first, end, head;
  Bounds any, bounds[2];  // token ranges of the other operand: of the warpgroup, and of this lane's two rows
  Stat row_stat[2];  // log-sum-exp and delta of this lane's two rows, if the block owns queries

  GYR_DEVICE Tokens(const G& of, float scale, int group)
      : of(of), scale(scale), group(group), first(of.first + group * group_rows), end(of.end), head(of.head) {
    const int last = first + group_rows < end ? first + group_rows : end;
    any = {0, 0};
    if (first < end) any = {of.bounds_of(first).from, of.bounds_of(last - 1).to};
    for (int h = 0; h < 2; ++h) {
      const int mine = row(h) < end ? row(h) : end - 1;  // the last own token, if the row is beyond the end
      bounds[h] = of.bounds_of(mine);
      if (!of_keys) row_stat[h] = stat_of(of.in, of.b * of.s.queries + mine, head);
    }
  }
  GYR_DEVICE int row(int h) const { return first + warp() % (group_threads / warp_size) * 16 + lane() / quads + h * 8; }
  GYR_DEVICE bool overlaps(const typename G::Place& p) const { return any.from < p.first + G::step && p.first < any.to; }

  GYR_DEVICE void fetch_block_tiles() const {
    const int t = thread_index() % group_threads;
    of.template fetch_tokens<0, !of_keys, group_rows, group_threads>(first, head, G::block_tile(0), group * group_rows, t);
    of.template fetch_tokens<1, !of_keys, group_rows, group_threads>(first, head, G::block_tile(1), group * group_rows, t);
    commit_copies();
    wait_copies<0>();
    fence_async_proxy();
    sync_named_barrier(block_tiles_ready, computing);
  }

  // Log-sum-exp and delta of the two queries in this lane's neighbouring columns of block n of the tile.
  GYR_DEVICE static Pack<float, 4> stats_of(int place, int n) {
    return Shared<Pack<float, 4>>(G::stats_at + place * G::stat_bytes).load(n * 4 + lane() % quads);
  }
  // In place: dot products become p = exp2(scale S - lse).
  GYR_DEVICE void weigh(int place, Scores& score) const {
    GYR_UNROLL
    for (int n = 0; n < G::step / 8; ++n) {
      Pack<float, 4> stat = {};
      if constexpr (of_keys) stat = stats_of(place, n);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) score[n].at[i] = exp2(score[n].at[i] * scale - (of_keys ? stat.at[i % 2 * 2] : row_stat[i / 2].at[0]));
    }
  }
  // In place: slope, which holds dp = dO V', becomes ds = p (dp - delta).
  GYR_DEVICE void slope(int place, const Scores& p, Scores& slope) const {
    GYR_UNROLL
    for (int n = 0; n < G::step / 8; ++n) {
      Pack<float, 4> stat = {};
      if constexpr (of_keys) stat = stats_of(place, n);
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) slope[n].at[i] = p[n].at[i] * (slope[n].at[i] - (of_keys ? stat.at[i % 2 * 2 + 1] : row_stat[i / 2].at[1]));
    }
  }
  // Sets x to zero for pairs that the mask hides.
  GYR_DEVICE void hide(const typename G::Place& p, Scores& x) const {
    if (bounds[1].from <= p.first && p.first + G::step <= bounds[0].to) return;
    GYR_UNROLL
    for (int n = 0; n < G::step / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int other = p.first + n * 8 + lane() % quads * 2 + i % 2;
        if (other < bounds[i / 2].from || bounds[i / 2].to <= other) x[n].at[i] = 0;
      }
    }
  }

  // Accumulates the gradients without the factor `scale`: sum1 is dQ or dK, sum2 is dV.
  template <int F>
  GYR_DEVICE void walk(FragmentD (&sum1)[W / 8], FragmentD (&sum2)[F]) const {
    const int count = of.tiles();
    typename G::Place here = of.begin();
    for (int t = 0; t < count; ++t, here = of.next(here)) {
      const int place = t % G::places;
      sync_named_barrier(full(place, group), full_threads);
      if (overlaps(here)) add(here, place, sum1, sum2);
      if (t + G::places < count) arrive_at_barrier(empty(place), empty_threads);
    }
  }

  template <int F>
  GYR_DEVICE void add(const typename G::Place& here, int place, FragmentD (&sum1)[W / 8], FragmentD (&sum2)[F]) const {
    using BlockTile = typename G::BlockTile;
    using StepTile = typename G::StepTile;
    const StepTile y1 = G::step_tile(0, place), y2 = G::step_tile(1, place);
    Scores score = {}, ds = {};
    FragmentA p[G::step / 16], left[G::step / 16];
    fence_wgmma(score, ds);
    multiply_rows<W, BlockTile, StepTile>(G::block_tile(0).by_rows(group * group_rows), y1.by_rows(), score);
    commit_wgmma();
    multiply_rows<W, BlockTile, StepTile>(G::block_tile(1).by_rows(group * group_rows), y2.by_rows(), ds);
    commit_wgmma();
    wait_wgmma<1>(score);
    weigh(place, score);
    hide(here, score);
    if constexpr (of_keys) {
      round(score, p);
      fence_wgmma(sum2, p);
      add_columns<StepTile>(p, y2.by_columns(), sum2);
      commit_wgmma();
      wait_wgmma<1>(ds);
    } else {
      wait_wgmma<0>(ds);
    }
    slope(place, score, ds);
    hide(here, ds);
    round(ds, left);
    fence_wgmma(sum1, left);
    add_columns<StepTile>(left, y1.by_columns(), sum1);
    commit_wgmma();
    if constexpr (of_keys) wait_wgmma<0>(sum1, left, sum2, p);
    else wait_wgmma<0>(sum1, left);
  }
};

template <int W>
GYR_KERNEL_OF(all_threads, 1)
gradient_of_queries_kernel(Heads s, float scale, Inputs in, Global<float> dq) {
  if constexpr (has_warpgroups) {
    using G = Gradient<W, false>;
    const G of(s, in, 1, int(block_index()));
    const int role = shuffle(thread_index() / group_threads, 0);
    if (role == 0) {
      decrease_registers<producer_registers>();
      if (warp() % 2 == 0) of.template load_tile<0>();
      else of.template load_tile<1>();
    } else {
      increase_registers<consumer_registers>();
      const Tokens<W, false> tokens(of, scale * log2_e, role - 1);
      FragmentD sum[1][W / 8] = {}, none[1] = {};
      if (of.all.from >= of.all.to) return;
      tokens.fetch_block_tiles();
      tokens.walk(sum[0], none);
      store<W>(dq, true, tokens, of.b * s.queries, s.head_dim, scale, sum);
    }
  }
}

// With one part, adds to dk and dv. With several parts, writes the partial sums of each part.
template <int W>
GYR_KERNEL_OF(all_threads, 1)
gradient_of_keys_kernel(Heads s, float scale, Inputs in, int parts, Global<float> dk, Global<float> dv) {
  if constexpr (has_warpgroups) {
    using G = Gradient<W, true>;
    const G of(s, in, parts, int(block_index()));
    const int role = shuffle(thread_index() / group_threads, 0);
    if (role == 0) {
      decrease_registers<producer_registers>();
      if (warp() % 2 == 0) of.template load_tile<0>();
      else of.template load_tile<1>();
    } else {
      increase_registers<consumer_registers>();
      const Tokens<W, true> tokens(of, scale * log2_e, role - 1);
      FragmentD key_sum[1][W / 8] = {}, value_sum[1][W / 8] = {};
      if (of.all.from < of.all.to) {
        tokens.fetch_block_tiles();
        tokens.walk(key_sum[0], value_sum[0]);
      }
      const Index first_row = (of.part * s.batch + of.b) * s.keys;
      store<W>(dk, parts == 1, tokens, first_row, s.head_dim, scale, key_sum);
      store<W>(dv, parts == 1, tokens, first_row, s.v_head_dim, 1, value_sum);
    }
  }
}

template <int W>
void gradients(Device& dev, const Heads& s, float scale, const Inputs& in, Index parts, const Global<float>& dq, const Global<float>& dk,
               const Global<float>& dv) {
  launch(dev, "attention_backward", {s.batch * s.num_heads * ceil_div(s.queries, block_rows), all_threads, Gradient<W, false>::shared_bytes},
         gradient_of_queries_kernel<W>, s, scale, in, dq);
  launch(dev, "attention_backward", {s.batch * s.num_kv_heads * ceil_div(s.keys, block_rows) * parts, all_threads, Gradient<W, true>::shared_bytes},
         gradient_of_keys_kernel<W>, s, scale, in, int(parts), dk, dv);
}

}  // namespace

void attention_gradients_by_warpgroups(Device& dev, const Heads& s, double scale, const Inputs& in, Index parts, const Global<float>& dq,
                                       const Global<float>& dk, const Global<float>& dv) {
  if (std::max(s.head_dim, s.v_head_dim) <= 64) gradients<64>(dev, s, float(scale), in, parts, dq, dk, dv);
  else gradients<128>(dev, s, float(scale), in, parts, dq, dk, dv);
}

}  // namespace gyr::backend
