// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the scan in bf16 with tensor cores. ssd_gradient.cu has the formulas. There are three kernels: one
// computes dG of a group and the sums of E of its heads for pairs of token tiles, one computes dB and dC from dG and
// the states, and one computes dx (ssd_output_sm80.cu).
#include "kernels/cuda/ssm/ssd_sm80.hpp"

namespace gyr::cuda::scan {

namespace {

// ---- Pairs: one block computes 64 tokens s by 64 tokens l of a group, head by head ----

struct Pairs {
  Global<const bf16> x, dy;
  Global<const float> step, cb;  // step: dt of each token; cb: dot products B_s . C_l, with rows s
  Global<bf16> of_outputs, of_inputs;  // gradient dG of C B', and its transpose
  Global<double> rows, columns;  // sums of E over s and over l, (B chunks H tiles, Q)
};

// Shared-memory layout of a block. Each stage holds x of the tokens s, dy of the tokens l, their decay exponents, and
// dt of the tokens s, all of one head. The per-warp sums of E of two heads follow.
template <int W>
struct PairSharedMemory {
  static constexpr int tile_bytes = Tile(0, W).end(), table_bytes = 5 * span * int(sizeof(float));
  static constexpr int table_of(int i) { return usual_stages * 2 * tile_bytes + i * table_bytes; }
  static constexpr int bytes = table_of(usual_stages) + 2 * warps * span * int(sizeof(float));
  static GYR_FUNCTION constexpr Tile x(int i) { return {2 * i * tile_bytes, W}; }
  static GYR_FUNCTION constexpr Tile dy(int i) { return {(2 * i + 1) * tile_bytes, W}; }
  // sum and rest have the entries of the tokens l, then those of the tokens s. step has only the tokens s.
  static GYR_DEVICE Shared<float> sum(int i) { return Shared<float>(table_of(i)); }
  static GYR_DEVICE Shared<float> rest(int i) { return Shared<float>(table_of(i) + 2 * span * int(sizeof(float))); }
  static GYR_DEVICE Shared<float> step(int i) { return Shared<float>(table_of(i) + 4 * span * int(sizeof(float))); }
  static GYR_DEVICE int by_warp(int stage_index) { return table_of(usual_stages) + stage_index * warps * span * int(sizeof(float)); }
};

// Reduces two values over the pair of lanes that differ in `bit`: the lane without the bit returns the sum of `first`,
// the other one the sum of `second`.
GYR_DEVICE float fold(float first, float second, int bit) {
  const bool upper = lane() & bit;
  return (upper ? second : first) + shuffle_xor(upper ? first : second, bit);
}

template <int W>
struct PairGradient {
  using SharedStorage = PairSharedMemory<W>;
  const ChunkGrid& s;
  const Pairs& in;
  const Decays<float>& decays;
  const Chunk& k;
  Index group, s0, l0;

  GYR_DEVICE Index head(int i) const { return group * s.heads_per_group() + i; }
  GYR_DEVICE Index row(int i) const { return k.number * s.num_heads + head(i); }

  // visible_pairs: bit 4 n + i is set if token s is visible to token l, for element i of the lane's fragment n. keep:
  // zeroes the elements whose bit is clear.
  GYR_DEVICE std::uint32_t visible_pairs() const {
    std::uint32_t seen = 0;
    for (int n = 0; n < span / 8; ++n)
      for (int i = 0; i < 4; ++i) {
        const Index l = l0 + my_column(n) + i % 2, t = s0 + my_row(i / 2);
        if (t <= l && l < k.length && t >= k.begin(s, l)) seen |= 1u << (4 * n + i);
      }
    return seen;
  }
  GYR_DEVICE void keep(std::uint32_t seen, FragmentD (&x)[span / 8]) const {
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) x[n].at[i] = seen >> (4 * n + i) & 1u ? x[n].at[i] : 0.0f;
    }
  }

  // Values that one thread loads for one head: the decay exponent of a token l or s, and dt of a token s.
  struct Token {
    float sum, rest, step;
  };
  GYR_DEVICE Token token(int i) const {
    const Index t = thread_index() < span ? l0 + thread_index() : s0 + thread_index() - span;
    if (t >= k.length) return {0, 0, 0};
    return {decays.sum.load(row(i), t), decays.rest.load(row(i), t), thread_index() < span ? 0.0f : in.step.load(row(i), t)};
  }
  GYR_DEVICE void put(const Token& t, int at) const {
    SharedStorage::sum(at).store(thread_index(), t.sum), SharedStorage::rest(at).store(thread_index(), t.rest);
    if (thread_index() >= span) SharedStorage::step(at).store(thread_index() - span, t.step);
  }

  // Adds one head to dG', including masked pairs. Writes the sums of E over s to `by_warp`, and those over l to global
  // memory.
  GYR_DEVICE void add_head(int i, int at, const FragmentD (&product)[span / 8], FragmentD (&dg)[span / 8]) const {
    FragmentD slope[span / 8] = {};
    add_by_rows<W>(SharedStorage::x(at), SharedStorage::dy(at), slope);
    DecaySum<float> mine[2];
    float step[2], of_s[2] = {};
    for (int h = 0; h < 2; ++h) {
      mine[h] = {SharedStorage::sum(at).load(span + my_row(h)), SharedStorage::rest(at).load(span + my_row(h))};
      step[h] = SharedStorage::step(at).load(my_row(h));
    }
    // Processes the eight columns of fragment n. Returns this lane's sums of E for its two columns (tokens l).
    const auto eight = [&](int n) {
      const auto sum = Shared<Pack<float, 2>>(SharedStorage::table_of(at) + my_column(n) * int(sizeof(float))).load(0),
                 rest = Shared<Pack<float, 2>>(SharedStorage::table_of(at) + (2 * span + my_column(n)) * int(sizeof(float))).load(0);
      Pack<float, 2> of_l = {};
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, j = i % 2;
        const float v = slope[n].at[i] * step[h] * fast_decay({sum.at[j], rest.at[j]}, mine[h]), e = v * product[n].at[i];
        dg[n].at[i] += v, of_l.at[j] += e, of_s[h] += e;
      }
      return of_l;
    };
    // Reduces over lanes so that each lane keeps two of the 64 column sums, those of fragment lane / 4.
    float of_l[4][2];
    GYR_UNROLL
    for (int n = 0; n < 4; ++n) {
      const Pack<float, 2> first = eight(n), second = eight(n + 4);
      for (int j = 0; j < 2; ++j) of_l[n][j] = fold(first.at[j], second.at[j], 16);
    }
    Pack<float, 2> mine_of_l;
    for (int j = 0; j < 2; ++j) mine_of_l.at[j] = fold(fold(of_l[0][j], of_l[2][j], 8), fold(of_l[1][j], of_l[3][j], 8), 4);
    Shared<Pack<float, 2>>(SharedStorage::by_warp(i % 2) + (warp() * span + 2 * lane()) * int(sizeof(float))).store(0, mine_of_l);
    for (int h = 0; h < 2; ++h) {
      const float all = quad_sum(of_s[h]);
      if (const Index t = s0 + my_row(h); lane() % quads == 0 && t < k.length) in.columns.store(row(i) * s.tiles() + l0 / span, t, double(all));
    }
  }
  GYR_DEVICE void put_rows(int i) const {
    const Index l = l0 + thread_index();
    if (thread_index() >= span || l >= k.length) return;
    double all = 0;
    for (int w = 0; w < warps; ++w) all += double(Shared<float>(SharedStorage::by_warp(i % 2)).load(w * span + thread_index()));
    in.rows.store(row(i) * s.tiles() + s0 / span, l, all);
  }

  GYR_DEVICE void add_heads(FragmentD (&dg)[span / 8]) const {
    const int heads = int(s.heads_per_group());
    const Index P = s.head_dim, end = k.first + k.length, pair = pair_of(s, k.number, group, s0 / span, l0 / span);
    FragmentD product[span / 8];
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      const auto p = in.cb.template load_pack<4>(pair, number_of(n));
      for (int i = 0; i < 4; ++i) product[n].at[i] = p.at[i];
    }
    const std::uint32_t seen = visible_pairs();
    keep(seen, product);
    if (l0 == s0) each_element(product, [&](int h, int column, float& v) { v = column == my_row(h) ? 0.0f : v; });  // E excludes pairs l = s
    put(token(0), 0);
    pipeline<usual_stages>(
        heads,
        [&](int i, int at) {
          fetch<span, W, tensor_threads>(in.x, k.first + s0, end, head(i) * P, (head(i) + 1) * P, SharedStorage::x(at));
          fetch<span, W, tensor_threads>(in.dy, k.first + l0, end, head(i) * P, (head(i) + 1) * P, SharedStorage::dy(at));
        },
        [&](int i, int at) {
          if (i > 0) put_rows(i - 1);
          const Token next = i + 1 < heads ? token(i + 1) : Token{0, 0, 0};
          add_head(i, at, product, dg);
          put(next, at + 1 < usual_stages ? at + 1 : 0);
        });
    sync_block();
    put_rows(heads - 1);
    keep(seen, dg);
  }
  // Writes zero sums of E if no token s is visible to any token l.
  GYR_DEVICE void put_zeros() const {
    const Index l = l0 + thread_index(), t = s0 + thread_index();
    if (l0 < s0 || thread_index() >= span) return;
    for (int i = 0; i < int(s.heads_per_group()); ++i) {
      if (l < k.length) in.rows.store(row(i) * s.tiles() + s0 / span, l, 0);
      if (t < k.length) in.columns.store(row(i) * s.tiles() + l0 / span, t, 0);
    }
  }
};

template <int W>
GYR_KERNEL_OF(tensor_threads, W == span ? 3 : 2)
pairs_kernel(ChunkGrid s, Pairs in, Decays<float> decays) {
  BlockIndex rest;
  const Index l0 = rest.take(s.tiles()) * span, s0 = rest.take(s.tiles()) * span, group = rest.take(s.num_groups);
  const Chunk k(s, rest.left);
  if (l0 >= k.length || s0 >= k.length) return;
  const PairGradient<W> of{s, in, decays, k, group, s0, l0};
  FragmentD dg[span / 8] = {};
  if (sync_with(s, k, l0, s0)) of.add_heads(dg);
  else of.put_zeros();
  const Index first = (k.number * s.num_groups + group) * s.tiles() * span;
  each_pair(dg, [&](int h, int l, float v, float next) {
    const Index t = s0 + my_row(h);
    in.of_inputs.template store_pack<2>(first + t, l0 + l, {{bf16(v), bf16(next)}});
    in.of_outputs.store(first + l0 + l, t, bf16(v)), in.of_outputs.store(first + l0 + l + 1, t, bf16(next));
  });
}

// ---- Groups: one block computes 128 tokens by 64 state dimensions of dB or dC ----

// out = sum over heads of factor left S' + weights other_tokens. state_term: dot product of each head's state term with `block_tile`.
struct Side {
  Global<const bf16> left, state, block_tile, weights, other_tokens;
  Global<const float> factor, step;  // factors of each token's state term: `factor`, times `step` unless it is empty
  Global<bf16> out;
  Global<float> state_term;
};

// Shared-memory layout of a block. Each stage holds a left tile of 128 x 64 and a right tile of 64 x 64, from a head's
// state or from other tokens. The block's own tile of C or B, 128 x 64, follows.
struct GroupSharedMemory {
  static constexpr int left_bytes = Tile(0, span, wide_rows).end(), right_bytes = Tile(0, span).end();
  static constexpr int bytes = usual_stages * (left_bytes + right_bytes) + left_bytes;
  static GYR_FUNCTION constexpr Tile block_tile() { return {usual_stages * (left_bytes + right_bytes), span, wide_rows}; }
  static GYR_FUNCTION constexpr Tile left(int i) { return {i * (left_bytes + right_bytes), span, wide_rows}; }
  static GYR_FUNCTION constexpr Tile right(int i) { return {i * (left_bytes + right_bytes) + left_bytes, span}; }
};

struct GroupGradient {
  const ChunkGrid& s;
  const Side& in;
  const Chunk& k;
  Index group, r0, n0;

  GYR_DEVICE Index token(int h) const { return r0 + my_row(h); }
  GYR_DEVICE bool inside(int h) const { return token(h) < k.length; }
  GYR_DEVICE float factor_of(Index row, Index l) const { return in.step ? in.factor.load(row, l) * in.step.load(row, l) : in.factor.load(row, l); }

  GYR_DEVICE void add_head(Index head, const float (&factor)[2], FragmentD (&part)[span / 8], FragmentD (&sum)[span / 8]) const {
    float product[2] = {};
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Tile block_tile = GroupSharedMemory::block_tile();
        const auto bf16_pair =
            Shared<Pack<bf16, 2>>(block_tile.first_byte + (my_row(h) * block_tile.stride + my_column(n)) * int(sizeof(bf16))).load(0);
        GYR_UNROLL
        for (int j = 0; j < 2; ++j) {
          const float v = part[n].at[2 * h + j] * factor[h];
          sum[n].at[2 * h + j] += v, product[h] += v * float(bf16_pair.at[j]);
        }
      }
      part[n] = {};
    }
    const Index parts = ceil_div(s.state_size, span);
    for (int h = 0; h < 2; ++h) {
      const float all = quad_sum(product[h]);
      if (inside(h) && lane() % quads == 0) in.state_term.store((k.number * s.num_heads + head) * parts + n0 / span, token(h), all);
    }
  }
  // first_tile, end_tile: range of the tiles of other tokens
  GYR_DEVICE void operator()(Index first_tile, Index end_tile, FragmentD (&sum)[span / 8]) const {
    const int slabs = int(ceil_div(s.head_dim, span)), states = int(s.heads_per_group()) * slabs;
    const Index first_head = group * s.heads_per_group(), P = s.head_dim, end = k.first + k.length;
    const Index weights_row = (k.number * s.num_groups + group) * s.tiles() * span, weights_end = s.tiles() * span;
    fetch<wide_rows, span, wide_threads>(in.block_tile, k.first + r0, end, group * s.state_size + n0, (group + 1) * s.state_size,
                                         GroupSharedMemory::block_tile());
    FragmentD part[span / 8] = {};
    pipeline<usual_stages>(
        states + int(end_tile - first_tile),
        [&](int i, int at) {
          if (i < states) {
            const Index head = first_head + i / slabs, p0 = i % slabs * span;
            fetch<wide_rows, span, wide_threads>(in.left, k.first + r0, end, head * P + p0, (head + 1) * P, GroupSharedMemory::left(at));
            fetch_state<span, wide_threads>(s, in.state, k.number, head, p0, n0, GroupSharedMemory::right(at));
          } else {
            const Index o0 = (first_tile + i - states) * span, first_number = group * s.state_size;
            fetch<wide_rows, span, wide_threads>(in.weights, weights_row + r0, weights_row + weights_end, o0, weights_end, GroupSharedMemory::left(at));
            fetch<span, span, wide_threads>(in.other_tokens, k.first + o0, end, first_number + n0, first_number + s.state_size,
                                            GroupSharedMemory::right(at));
          }
        },
        [&](int i, int at) {
          if (i >= states) return add_by_columns<span>(GroupSharedMemory::left(at), GroupSharedMemory::right(at), sum);
          const Index head = first_head + i / slabs;
          float factor[2] = {};
          for (int h = 0; h < 2; ++h)
            if (inside(h)) factor[h] = factor_of(k.number * s.num_heads + head, token(h));
          add_by_columns<span>(GroupSharedMemory::left(at), GroupSharedMemory::right(at), part);
          if (i % slabs == slabs - 1) add_head(head, factor, part, sum);
        });
  }
};

GYR_KERNEL_OF(wide_threads, 2)
groups_kernel(ChunkGrid s, Side of_c, Side of_b) {
  BlockIndex rest;
  const Index n0 = rest.take(ceil_div(s.state_size, span)) * span, r0 = rest.take(ceil_div(s.chunk_size, wide_rows)) * wide_rows;
  const Index group = rest.take(s.num_groups);
  const bool back = rest.take(2) == 0;  // dC sums over earlier tokens, dB over later tokens
  const Chunk k(s, rest.left);
  if (r0 >= k.length) return;
  const Index last = (r0 + wide_rows < k.length ? r0 + wide_rows : k.length) - 1;
  Index first_tile = r0 / span, end_tile = last / span + 1;
  if (back) first_tile = k.begin(s, r0) / span;
  else
    while (end_tile * span < k.length && k.begin(s, end_tile * span) <= last) ++end_tile;
  const Side& in = back ? of_c : of_b;
  const GroupGradient of{s, in, k, group, r0, n0};
  FragmentD sum[span / 8] = {};
  of(first_tile, end_tile, sum);
  each_four(sum, [&](int h, int n, const Pack<bf16, 4>& v) {
    if (of.inside(h) && n0 + n < s.state_size) in.out.template store_pack<4>(k.first + of.token(h), group * s.state_size + n0 + n, v);
  });
}

template <int W>
void launch_pairs(Device& dev, const ChunkGrid& s, const Pairs& pairs, const Decays<float>& decays) {
  launch(dev, "ssd_backward", {s.all_chunks() * s.num_groups * s.tiles() * s.tiles(), tensor_threads, PairSharedMemory<W>::bytes}, pairs_kernel<W>, s, pairs,
         decays);
}

}  // namespace

bool token_gradients_by_tensor_cores(Device& dev, const ChunkGrid& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const Global<const float>& entering, const States<const float>& of_states, const TensorCoreScratch& scratch,
                                     bool walked, const SsdInputGradient<bf16>& d_in, TokenSums<float>& sums) {
  const Global<bf16> dx(d_in.x), db(d_in.b), dc(d_in.c);
  if (!scratch.entering.data() || !fits_tensor_cores(s, in.x, in.b, in.c, dy, entering, of_states.between, of_states.last, dx, db, dc)) return false;
  if (!walked) {
    factors_by_tensor_cores(dev, "ssd_backward", s, in, scratch);
    round_states(dev, "ssd_backward", s, in, entering, of_states, scratch, &sums);
  }
  cb_by_tensor_cores(dev, "ssd_backward", s, in, true, scratch);
  const Pairs pairs{in.x, dy, scratch.step, scratch.cb, scratch.of_outputs, scratch.of_inputs, sums.rows, sums.columns};
  if (s.head_dim <= span) launch_pairs<span>(dev, s, pairs, in.decays);
  else launch_pairs<2 * span>(dev, s, pairs, in.decays);
  const Side of_c{dy, scratch.entering, in.c, scratch.of_outputs, in.b, scratch.start, {}, dc, sums.inflow},
      of_b{in.x, scratch.leaving, in.b, scratch.of_inputs, in.c, scratch.end, scratch.step, db, sums.outflow};
  launch(dev, "ssd_backward",
         {s.all_chunks() * 2 * s.num_groups * ceil_div(s.chunk_size, wide_rows) * ceil_div(s.state_size, span), wide_threads, GroupSharedMemory::bytes},
         groups_kernel, s, of_c, of_b);
  input_gradients_by_tensor_cores(dev, s, in, d, dy, scratch, dx, sums);
  return true;
}

}  // namespace gyr::cuda::scan
