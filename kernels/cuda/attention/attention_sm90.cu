// SPDX-License-Identifier: BSD-3-Clause
// FlashAttention-3 forward on Hopper with wgmma (Shah et al., 2024). A block computes 128 queries of a head. One
// producer warpgroup fills a two-stage ring buffer of K and V tiles with 128 keys each; one warp fills each buffer as
// soon as both consumers have released it. Two consumer warpgroups of 64 query rows each ping-pong: while one computes
// the softmax, the other one's wgmma runs. Each consumer issues Q K' of the next tile before P V of the current tile.
// Tiles that are partly visible are masked.
#include "kernels/cuda/attention/attention_rows.hpp"
#include "kernels/cuda/machine/wgmma_tiles.hpp"

namespace gyr::backend {

using namespace cuda;
using namespace by_tensor_cores;

namespace {

constexpr int groups = 2, group_rows = 64, q_tile = groups * group_rows, kv_tile = 128;
constexpr int all_threads = (1 + groups) * group_threads;
// Registers per thread of the producer and of the consumers (setmaxnreg). A block starts with 168 registers per thread.
constexpr int producer_registers = 40, consumer_registers = 232;
static_assert(producer_registers + groups * consumer_registers <= (1 + groups) * 168);

// Buffers of the ring: keys and values of even tiles, then keys and values of odd tiles.
constexpr int places = 4;
[[maybe_unused]] GYR_FUNCTION constexpr int keys_of(int t) { return t % 2 * 2; }
[[maybe_unused]] GYR_FUNCTION constexpr int values_of(int t) { return t % 2 * 2 + 1; }

// Named barriers: a buffer is full (one barrier per consumer), a buffer is empty, a consumer may issue its wgmmas
// (ping-pong), and the queries are in shared memory.
GYR_FUNCTION constexpr int full(int place, int group) { return 1 + groups * place + group; }
GYR_FUNCTION constexpr int empty(int place) { return 1 + groups * places + place; }
GYR_FUNCTION constexpr int ping_pong_barrier(int group) { return 1 + (groups + 1) * places + group; }
constexpr int queries_ready = 1 + (groups + 1) * places + groups;
static_assert(queries_ready < 16);
constexpr int computing = groups * group_threads, full_threads = warp_size + group_threads, empty_threads = warp_size + computing;

template <int W>
struct Tiles {
  using QTile = GroupTile<W, q_tile>;
  using KvTile = GroupTile<W, kv_tile>;
  static constexpr int bytes = QTile::bytes + places * KvTile::bytes;
  GYR_DEVICE static QTile queries() { return QTile(0); }
  GYR_DEVICE static KvTile at(int place) { return KvTile(QTile::bytes + place * KvTile::bytes); }
};

// Visible key range of queries whose keys are not in a KV cache.
struct KeyRange {
  const Heads& s;
  GYR_DEVICE int hidden(Index b, Index i) const { return int(s.masked_out(b, i)); }
  GYR_DEVICE int seen(Index b, Index i) const { return int(s.visible_by_mask(b, i)); }
};

// Work of a block. Blocks process `heads_at_once` heads at a time, whose keys and values stay in the L2 cache. Within these
// heads, the query tiles with the most visible keys come first.
struct Job {
  int b, head, first, last;  // queries [first, last) of query head `head` in sequence b
  int begin, tiles;  // number of key tiles, from key `begin` on, that any of these queries sees

  GYR_DEVICE Job(const Heads& s, int heads_at_once, int number) {
    const int of_head = int(ceil_div(s.queries, q_tile)), heads = int(s.batch * s.num_heads);
    const int first_head = number / (heads_at_once * of_head) * heads_at_once, rest = number - first_head * of_head;
    const int here = first_head + heads_at_once < heads ? heads_at_once : heads - first_head, any = first_head + rest % here;
    b = any / int(s.num_heads), head = any % int(s.num_heads);
    first = (of_head - 1 - rest / here) * q_tile;
    last = first + q_tile < s.queries ? first + q_tile : int(s.queries);
    begin = KeyRange{s}.hidden(b, first);
    const int end = KeyRange{s}.seen(b, last - 1);
    tiles = begin < end ? int(ceil_div(end - begin, kv_tile)) : 0;
  }
};

// Producer: each warp of the first warpgroup fills its buffer of the ring with keys or with values.
template <int W>
GYR_DEVICE void load_tile(const Heads& s, const Job& job, const Global<const bf16>& x, int width) {
  const int place = warp(), kv_head = job.head / (int(s.num_heads) / int(s.num_kv_heads));
  const Index row = job.b * s.keys;
  for (int t = place / 2; t < job.tiles; t += 2) {
    if (t >= 2) sync_named_barrier(empty(place), empty_threads);
    fetch<kv_tile, warp_size>(x, row + job.begin + t * kv_tile, row + s.keys, kv_head * width, width, Tiles<W>::at(place), 0, lane());
    commit_copies();
    wait_copies<0>();
    fence_async_proxy();
    for (int g = 0; g < groups; ++g) arrive_at_barrier(full(place, g), full_threads);
  }
}

// Online softmax: dot products of 16 rows and 8 F keys become p, and the rows' maximum and sum are updated. scale:
// softmax scale times log2 e. shrink: factors for the earlier sums and outputs. Each row has two partial sums and two
// partial maxima, which shortens the dependency chains.
template <int F>
GYR_DEVICE void softmax_step(FragmentD (&s)[1][F], float scale, Rows<1>& rows, float (&shrink)[2]) {
  float most[2][2];
  GYR_UNROLL
  for (int h = 0; h < 2; ++h) {
    GYR_UNROLL
    for (int c = 0; c < 2; ++c) {
      most[h][c] = s[0][0].at[2 * h + c];
      GYR_UNROLL
      for (int n = 1; n < F; ++n) most[h][c] = largest(most[h][c], s[0][n].at[2 * h + c]);
    }
  }
  float base[2], sum[2][2];
  GYR_UNROLL
  for (int h = 0; h < 2; ++h) {
    float top = largest(most[h][0], most[h][1]);
    for (int with = 1; with < quads; with *= 2) top = largest(top, shuffle_xor(top, with));
    top = largest(rows.top[h], top * scale);
    base[h] = top == -infinity ? 0 : top;  // 0 if the row has not seen any key yet
    shrink[h] = exp2(rows.top[h] - base[h]);
    rows.top[h] = top;
    sum[h][0] = rows.sum[h] * shrink[h], sum[h][1] = 0;
  }
  GYR_UNROLL
  for (int n = 0; n < F; ++n) {
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& p = s[0][n].at[i];
      p = exp2(p * scale - base[i / 2]), sum[i / 2][i % 2] += p;
    }
  }
  for (int h = 0; h < 2; ++h) rows.sum[h] = sum[h][0] + sum[h][1];
}

// Consumer: the 64 queries of one warpgroup.
template <int W>
struct Queries {
  using T = Tiles<W>;
  const Heads& s;
  const Job& job;
  float scale;
  int group;

  // Loads this warpgroup's queries into shared memory.
  GYR_DEVICE void fetch_q_tile(const Global<const bf16>& q) const {
    const Index row = job.b * s.queries;
    fetch<group_rows, group_threads>(q, row + first(), row + s.queries, job.head * s.head_dim, s.head_dim, T::queries(), group * group_rows,
                                     thread_index() % group_threads);
    commit_copies();
    wait_copies<0>();
    fence_async_proxy();
    sync_named_barrier(queries_ready, computing);
  }
  GYR_DEVICE int first() const { return job.first + group * group_rows; }
  GYR_DEVICE int first_of_warp() const { return first() + warp() % (group_threads / warp_size) * 16; }

  // Tiles [from, to) are visible to at least one of this warpgroup's queries.
  struct Range {
    int from, to;
  };
  GYR_DEVICE Range tiles() const {
    if (first() >= job.last) return {0, 0};
    const int last = first() + group_rows < job.last ? first() + group_rows : job.last;
    const int hidden = KeyRange{s}.hidden(job.b, first()), seen = KeyRange{s}.seen(job.b, last - 1);
    if (seen <= hidden) return {0, 0};
    return {(hidden - job.begin) / kv_tile, int(ceil_div(seen - job.begin, kv_tile))};
  }

  GYR_DEVICE void wait_for(int place) const { sync_named_barrier(full(place, group), full_threads); }
  // Releases the buffer of tile t, unless no later tile will use it.
  GYR_DEVICE void leave(int place, int t) const {
    if (t + 2 < job.tiles) arrive_at_barrier(empty(place), empty_threads);
  }
  GYR_DEVICE void wait_ping_pong() const { sync_named_barrier(ping_pong_barrier(group), computing); }
  GYR_DEVICE void arrive_ping_pong(int t) const {
    if (group + 1 < groups || t + 1 < job.tiles) arrive_at_barrier(ping_pong_barrier((group + 1) % groups), computing);
  }
  // The second consumer gives the first one its first turn to issue wgmmas.
  GYR_DEVICE void begin_ping_pong() const {
    if (group > 0 && job.tiles > 0) arrive_at_barrier(ping_pong_barrier(0), computing);
  }
  // Skips a tile that none of this warpgroup's queries sees: waits for it and releases it.
  GYR_DEVICE void pass_over(int t) const {
    wait_ping_pong();
    arrive_ping_pong(t);
    wait_for(keys_of(t)), leave(keys_of(t), t);
    wait_for(values_of(t)), leave(values_of(t), t);
  }

  GYR_DEVICE void issue_qk(int t, FragmentD (&score)[1][kv_tile / 8]) const {
    fence_wgmma(score[0]);
    multiply_rows<W, typename T::QTile, typename T::KvTile>(T::queries().by_rows(group * group_rows), T::at(keys_of(t)).by_rows(), score[0]);
    commit_wgmma();
  }
  GYR_DEVICE void issue_pv(int t, FragmentA (&p)[kv_tile / 16], FragmentD (&out)[1][W / 8]) const {
    fence_wgmma(out[0], p);
    add_columns<typename T::KvTile>(p, T::at(values_of(t)).by_columns(), out[0]);
    commit_wgmma();
  }
  GYR_DEVICE void weigh(int t, Rows<1>& rows, FragmentD (&score)[1][kv_tile / 8], float (&shrink)[2]) const {
    const int first_key = job.begin + t * kv_tile;
    if (!rows.sees_all(first_key, kv_tile)) hide(KeyRange{s}, job.b, rows, first_key, score);
    softmax_step(score, scale, rows, shrink);
  }

  GYR_DEVICE void walk(Rows<1>& rows, FragmentD (&out)[1][W / 8]) const {
    const Range visible_tiles = tiles();
    FragmentD score[1][kv_tile / 8] = {};
    FragmentA p[kv_tile / 16];
    float shrink[2];
    begin_ping_pong();
    GYR_UNROLL_BY(1)
    for (int t = 0; t < visible_tiles.from; ++t) pass_over(t);
    if (int t = visible_tiles.from; t < visible_tiles.to) {
      wait_for(keys_of(t));
      wait_ping_pong();
      issue_qk(t, score);
      arrive_ping_pong(t);
      wait_wgmma<0>(score[0]);
      leave(keys_of(t), t);
      weigh(t, rows, score, shrink);
      by_tensor_cores::scale(out, shrink);
      round(score[0], p);
      for (++t; t < visible_tiles.to; ++t) {
        wait_for(keys_of(t));
        wait_ping_pong();
        issue_qk(t, score);
        wait_for(values_of(t - 1));
        issue_pv(t - 1, p, out);
        arrive_ping_pong(t);
        wait_wgmma<1>(score[0]);
        leave(keys_of(t), t);
        weigh(t, rows, score, shrink);
        pin_registers(rows.sum[0] + rows.sum[1]);
        wait_wgmma<0>(out[0], p);
        leave(values_of(t - 1), t - 1);
        by_tensor_cores::scale(out, shrink);
        round(score[0], p);
      }
      wait_for(values_of(t - 1));
      issue_pv(t - 1, p, out);
      wait_wgmma<0>(out[0], p);
      leave(values_of(t - 1), t - 1);
    }
    GYR_UNROLL_BY(1)
    for (int t = visible_tiles.to; t < job.tiles; ++t) pass_over(t);
  }
};

// scale: softmax scale times log2 e
template <int W>
GYR_KERNEL_OF(all_threads, 1)
flash_kernel(Heads s, float scale, int heads_at_once, bool fresh, Global<const bf16> q, Global<const bf16> k, Global<const bf16> v, Global<float> o,
             Global<float> m, Global<float> l) {
  if constexpr (has_warpgroups) {
    const Job job(s, heads_at_once, int(block_index()));
    const int role = shuffle(thread_index() / group_threads, 0);
    if (role == 0) {
      decrease_registers<producer_registers>();
      if (warp() % 2 == 0) load_tile<W>(s, job, k, int(s.head_dim));
      else load_tile<W>(s, job, v, int(s.v_head_dim));
    } else {
      increase_registers<consumer_registers>();
      const Queries<W> queries{s, job, scale, role - 1};
      queries.fetch_q_tile(q);
      Rows<1> rows(KeyRange{s}, job.b, queries.first_of_warp(), job.last);
      FragmentD out[1][W / 8] = {};
      const Outputs<W, 1> outputs{o, job.b * s.queries, job.head * s.v_head_dim, int(s.v_head_dim)};
      if (!fresh) {
        rows.carry_on(m, l, job.b * s.queries, job.head);
        outputs.load(rows, out);
      }
      queries.walk(rows, out);
      outputs.store(rows, out);
      sync_warp();  // all lanes have read m and l before they are overwritten
      rows.store(m, l, job.b * s.queries, job.head);
    }
  }
}

// Number of query heads processed at a time: their keys and values must fit in part of the L2 cache (16 MiB).
int heads_at_once_of(const Heads& s) {
  constexpr Index cached = 16 << 20;
  const Index bytes = std::max<Index>(1, s.keys) * (s.head_dim + s.v_head_dim) * Index(sizeof(bf16));
  const Index heads = std::max<Index>(1, cached / bytes) * s.group();
  return int(std::min(heads, s.batch * s.num_heads));
}

template <int W>
void flash(Device& dev, const Heads& s, double scale, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
           const AttentionState<float>& state) {
  launch(dev, "attention", {s.batch * s.num_heads * ceil_div(s.queries, q_tile), all_threads, Tiles<W>::bytes}, flash_kernel<W>, s,
         float(scale) * log2_e, heads_at_once_of(s), fresh, q, k, v, state.o, state.m, state.l);
}

}  // namespace

void attention_by_warpgroups(Device& dev, const Heads& s, double scale, Matrix<const bf16> q, Matrix<const bf16> k, Matrix<const bf16> v, bool fresh,
                             AttentionState<float> state) {
  if (std::max(s.head_dim, s.v_head_dim) <= 64) flash<64>(dev, s, scale, q, k, v, fresh, state);
  else flash<128>(dev, s, scale, q, k, v, fresh, state);
}

}  // namespace gyr::backend
