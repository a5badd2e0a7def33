// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the scan of bf16 by tensor cores, as in ssd_gradient.cu. What tokens have to do with each other stays in registers.
#include "kernels/cuda/ssd_tensor.hpp"

namespace gyr::cuda::scan {

namespace {

// The tokens of a lane's rows.
struct Rows {
  Index token[2];
  bool inside[2];
  GYR_DEVICE Rows(const Chunk& k, Index first) {
    for (int h = 0; h < 2; ++h) token[h] = first + my_row(h), inside[h] = token[h] < k.length;
  }
};

// Whether token l sees token t.
GYR_DEVICE bool sees(const Cut& s, const Chunk& k, Index l, Index t) { return t <= l && l < k.length && t >= k.begin(s, l); }

// A block takes 64 tokens and 64 numbers of B or C of a group. Tiles of a block: by turns two of its tokens and two of others, of one head each, and
// the numbers of other tokens; where others lie, the head's state comes first.
template <class G, bool of_c>
struct GroupGradient {
  const Cut& s;
  const Tokens<bf16>& in;
  const G& g;
  const Chunk& k;
  Index r0, n0, group;

  GYR_DEVICE Tile mine(int turn) const { return place(turn); }
  GYR_DEVICE Tile other(int turn) const { return place(2 + turn); }
  GYR_DEVICE Tile numbers() const { return {place(3).end(), span}; }
  GYR_DEVICE Tile state() const { return {place(2).first_byte, span, int(ceil_div(s.head_dim, 16) * 16)}; }
  static int bytes(const Cut& s) {
    const Tile one(0, s.head_dim), numbers(4 * one.end(), span), state(2 * one.end(), span, int(ceil_div(s.head_dim, 16) * 16));
    return std::max(numbers.end(), state.end());
  }
  GYR_DEVICE Index first_head() const { return group * s.heads_per_group(); }
  GYR_DEVICE Index end_head() const { return first_head() + s.heads_per_group(); }
  GYR_DEVICE Index end() const { return k.first + k.length; }

  GYR_DEVICE void fetch_mine(Index head, int turn) const {
    fetch(of_c ? g.dy : in.x, k.first + r0, end(), head * s.head_dim, s.head_dim, mine(turn));
  }
  GYR_DEVICE void fetch_both(Index head, Index o0, int turn) const {
    fetch_mine(head, turn);
    fetch(of_c ? in.x : g.dy, k.first + o0, end(), head * s.head_dim, s.head_dim, other(turn));
  }

  // This block's numbers of C or B of a lane's rows.
  GYR_DEVICE void own_numbers(const Rows& rows, Pack<bf16, 2> (&own)[span / 8][2]) const {
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Index column = n0 + n * 8 + lane() % quads * 2;
        own[n][h] = {{bf16(0.0f), bf16(0.0f)}};
        if (rows.inside[h] && column < s.state_size)
          own[n][h] = (of_c ? in.c : in.b).template load_pack<2>(k.first + rows.token[h], group * s.state_size + column);
      }
    }
  }

  // What the head's state contributes, and its product with the rows' own numbers to `share`.
  GYR_DEVICE void add_state(Index head, int turn, const Rows& rows, const Pack<bf16, 2> (&own)[span / 8][2], const Global<float>& share,
                            FragmentD (&sum)[span / 8]) const {
    const HeadDecay<float> decay(s, k, in.decays, head);
    const auto round = [&](const Global<const float>& states, Index row) { round_state(s, states, row, head, n0, state()); };
    const bool there = of_c || g.of_states.keeps_leaving(s, k.number);
    if (of_c) round(g.entering, k.number);
    else if (there) g.of_states.with_leaving(s, k.number, round);
    sync_block();
    FragmentD part[span / 8] = {};
    if (there) add_by_columns(mine(turn), state(), s.head_dim, part);
    float factor[2] = {}, product[2] = {};
    for (int h = 0; h < 2; ++h)
      if (const Index l = rows.token[h]; rows.inside[h])
        factor[h] = of_c ? decay.from_start(l) : decay.to_end(l) * in.dt.load(k.first + l, head);
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float v = part[n].at[i] * factor[i / 2];
        sum[n].at[i] += v;
        product[i / 2] += v * float(own[n][i / 2].at[i % 2]);
      }
    }
    const Index parts = ceil_div(s.state_size, span), row = (k.number * s.num_heads + head) * parts + n0 / span;
    for (int h = 0; h < 2; ++h) {
      const float all = quad_sum(product[h]);
      if (rows.inside[h] && lane() % quads == 0) share.store(row, rows.token[h], all);
    }
  }
  GYR_DEVICE void add_states(const Rows& rows, const Global<float>& share, FragmentD (&sum)[span / 8]) const {
    Pack<bf16, 2> own[span / 8][2];
    own_numbers(rows, own);
    fetch_mine(first_head(), 0);
    commit_copies();
    for (Index head = first_head(), turn = 0; head < end_head(); ++head, turn = 1 - turn) {
      if (head + 1 < end_head()) fetch_mine(head + 1, int(1 - turn));
      commit_copies();
      wait_for_copies<1>();
      add_state(head, int(turn), rows, own, share, sum);
      sync_block();
    }
  }

  // Products of tokens, weighted, of one head: += to dG.
  GYR_DEVICE void add_weights(Index head, int turn, Index o0, const Rows& rows, FragmentD (&dg)[span / 8]) const {
    const HeadDecay<float> decay(s, k, in.decays, head);
    FragmentD product[span / 8] = {};
    add_by_rows(mine(turn), 0, other(turn), 0, s.head_dim, product);
    DecaySum<float> own[2] = {};
    float step[2] = {};
    for (int h = 0; h < 2; ++h)
      if (rows.inside[h]) own[h] = decay.at(rows.token[h]), step[h] = in.dt.load(k.first + rows.token[h], head);
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Index o = o0 + n * 8 + lane() % quads * 2 + i % 2, r = rows.token[i / 2], l = of_c ? r : o, t = of_c ? o : r;
        if (!sees(s, k, l, t)) continue;
        const DecaySum<float> there = decay.at(o);
        const float weight = of_c ? decay_between(own[i / 2], there) * in.dt.load(k.first + o, head) : decay_between(there, own[i / 2]) * step[i / 2];
        dg[n].at[i] += product[n].at[i] * weight;
      }
    }
  }
  GYR_DEVICE void add_tokens(Index o0, const Rows& rows, FragmentD (&sum)[span / 8]) const {
    FragmentD dg[span / 8] = {};
    fetch(of_c ? in.b : in.c, k.first + o0, end(), group * s.state_size + n0, s.state_size - n0, numbers());
    fetch_both(first_head(), o0, 0);
    commit_copies();
    for (Index head = first_head(), turn = 0; head < end_head(); ++head, turn = 1 - turn) {
      if (head + 1 < end_head()) fetch_both(head + 1, o0, int(1 - turn));
      commit_copies();
      wait_for_copies<1>();
      sync_block();
      add_weights(head, int(turn), o0, rows, dg);
      sync_block();
    }
    add_by_columns(dg, numbers(), sum);
    sync_block();
  }

 private:
  GYR_DEVICE Tile place(int i) const { return {i * Tile(0, s.head_dim).end(), s.head_dim}; }
};

struct Gradients {
  Global<const bf16> dy;
  Global<const float> entering;
  States<const float> of_states;
};

template <bool of_c>
GYR_KERNEL group_gradient_kernel(Cut s, Tokens<bf16> in, Gradients g, Global<bf16> out, Global<float> share) {
  BlockIndex rest;
  const Index n0 = rest.take(ceil_div(s.state_size, span)) * span, r0 = rest.take(ceil_div(s.chunk_size, span)) * span;
  const Index group = rest.take(s.num_groups);
  const Chunk k(s, rest.left);
  if (r0 >= k.length) return;
  const GroupGradient<Gradients, of_c> of{s, in, g, k, r0, n0, group};
  const Rows rows(k, r0);
  FragmentD sum[span / 8] = {};
  of.add_states(rows, share, sum);
  if (of_c)
    for (Index o0 = k.begin(s, r0) / span * span; o0 <= r0; o0 += span) of.add_tokens(o0, rows, sum);
  else
    for (Index o0 = r0; o0 < k.length && k.begin(s, o0) < r0 + span; o0 += span) of.add_tokens(o0, rows, sum);
  wait_for_copies<0>();
  each_pair(sum, [&](int h, int n, float v, float next) {
    if (rows.inside[h] && n0 + n < s.state_size)
      out.template store_pack<2>(k.first + rows.token[h], group * s.state_size + n0 + n, {{bf16(v), bf16(next)}});
  });
}

// A block takes a head of a chunk: its tokens s by 64, and for each the tokens l by 64 that are not before them. Tiles: B and x of the first, C and dy
// of the others; where C lies, the gradient of the state comes first.
template <int W>
struct HeadGradient {
  const Cut& s;
  const Tokens<bf16>& in;
  const Gradients& g;
  const Chunk& k;
  const TokenSums<float>& sums;
  Index head;
  HeadDecay<float> decay;
  Tile b, x, c, dy, state;
  Shared<float> row_room;  // of E, (4, 64)

  static int bytes(const Cut& s) {
    const Tile b(0, s.state_size), x(b.end(), W), c(x.end(), s.state_size), state(x.end(), span, W);
    return std::max(c.end(), state.end()) + Tile(0, W).end() + warps * span * int(sizeof(float));
  }
  GYR_DEVICE HeadGradient(const Cut& s, const Tokens<bf16>& in, const Gradients& g, const Chunk& k, const TokenSums<float>& sums, Index head)
      : s(s), in(in), g(g), k(k), sums(sums), head(head), decay(s, k, in.decays, head), b(0, s.state_size), x(b.end(), W), c(x.end(), s.state_size),
        dy(Tile(x.end(), span, W).end() > c.end() ? Tile(x.end(), span, W).end() : c.end(), W), state(x.end(), span, W), row_room(dy.end()) {}

  GYR_DEVICE Index row() const { return k.number * s.num_heads + head; }
  GYR_DEVICE void fetch_head(const Global<const bf16>& from, Index l0, const Tile& to) const {
    fetch(from, k.first + l0, k.first + k.length, head * s.head_dim, s.head_dim, to);
  }
  GYR_DEVICE void fetch_group(const Global<const bf16>& from, Index l0, const Tile& to) const {
    fetch(from, k.first + l0, k.first + k.length, head / s.heads_per_group() * s.state_size, s.state_size, to);
  }

  // exp(s_Q - s_s) dS B_s
  GYR_DEVICE void from_state(const Rows& rows, FragmentD (&du)[W / 8]) const {
    if (!g.of_states.keeps_leaving(s, k.number)) return;
    for (Index n0 = 0; n0 < s.state_size; n0 += span) {
      g.of_states.with_leaving(s, k.number, [&](const Global<const float>& states, Index at) { round_state(s, states, at, head, n0, state); });
      sync_block();
      const Index left = s.state_size - n0;
      add_by_rows(b, n0, state, 0, left < span ? left : span, du);
      sync_block();
    }
    float factor[2];
    for (int h = 0; h < 2; ++h) factor[h] = rows.inside[h] ? decay.to_end(rows.token[h]) : 0.0f;
    each_number(du, [&](int h, int, float& v) { v *= factor[h]; });
  }

  // W(l,s), in rows of s, in place of the products; E's sums by row of the fragments, which is a column s of E, and, in `row_room`, by l.
  GYR_DEVICE void weigh(const Rows& rows, Index l0, const float (&step)[2], const FragmentD (&slope)[span / 8], FragmentD (&weight)[span / 8],
                        float (&column_sums)[2]) const {
    DecaySum<float> own[2] = {};
    for (int h = 0; h < 2; ++h)
      if (rows.inside[h]) own[h] = decay.at(rows.token[h]);
    GYR_UNROLL
    for (int n = 0; n < span / 8; ++n) {
      GYR_UNROLL
      for (int j = 0; j < 2; ++j) {
        const Index l = l0 + n * 8 + lane() % quads * 2 + j;
        float of_l = 0;
        GYR_UNROLL
        for (int h = 0; h < 2; ++h) {
          float& w = weight[n].at[2 * h + j];
          w = sees(s, k, l, rows.token[h]) ? w * decay_between(decay.at(l), own[h]) : 0.0f;
          const float e = rows.token[h] < l ? step[h] * slope[n].at[2 * h + j] * w : 0.0f;
          of_l += e, column_sums[h] += e;
        }
        for (int with = quads; with < warp_size; with *= 2) of_l += shuffle_xor(of_l, with);
        if (lane() < quads) row_room.store(warp() * span + n * 8 + lane() * 2 + j, of_l);
      }
    }
  }
  GYR_DEVICE void add_row_sums(Index l0) const {
    const Index l = l0 + thread_index();
    if (thread_index() >= span || l >= k.length) return;
    double all = sums.rows.load(row(), l);
    for (int w = 0; w < warps; ++w) all += double(row_room.load(w * span + thread_index()));
    sums.rows.store(row(), l, all);
  }

  // dU of tokens from s0, and the sums of E's columns.
  GYR_DEVICE void input_gradient(Index s0, const Rows& rows, const float (&step)[2], FragmentD (&du)[W / 8], float (&column_sums)[2]) const {
    fetch_group(in.b, s0, b), fetch_head(in.x, s0, x), fetch_head(g.dy, s0, dy);
    commit_copies();
    wait_for_copies<0>();
    sync_block();
    from_state(rows, du);
    for (Index l0 = s0; l0 < k.length && k.begin(s, l0) < s0 + span; l0 += span) {
      fetch_group(in.c, l0, c);
      if (l0 > s0) fetch_head(g.dy, l0, dy);
      commit_copies();
      wait_for_copies<0>();
      sync_block();
      FragmentD weight[span / 8] = {}, slope[span / 8] = {};
      add_by_rows(b, 0, c, 0, s.state_size, weight);
      add_by_rows(x, 0, dy, 0, s.head_dim, slope);
      weigh(rows, l0, step, slope, weight, column_sums);
      add_by_columns(weight, dy, du);
      sync_block();
      add_row_sums(l0);
    }
    sync_block();
  }
};

// dx = dt dU + D dy, and the sums by token of x . dU and x . dy.
template <int W>
GYR_DEVICE void finish_tokens(const HeadGradient<W>& of, const Rows& rows, const float (&step)[2], float d, FragmentD (&du)[W / 8],
                              const float (&column_sums)[2], const Global<bf16>& dx) {
  float ddt[2] = {}, dd[2] = {};
  each_pair(du, [&](int h, int p, float v, float next) {
    if (!rows.inside[h] || p >= of.s.head_dim) return;
    const Index row = of.k.first + rows.token[h], column = of.head * of.s.head_dim + p;
    const auto x = of.in.x.template load_pack<2>(row, column), out = of.g.dy.template load_pack<2>(row, column);
    ddt[h] += float(x.at[0]) * v + float(x.at[1]) * next;
    dd[h] += float(x.at[0]) * float(out.at[0]) + float(x.at[1]) * float(out.at[1]);
    dx.template store_pack<2>(row, column, {{bf16(step[h] * v + d * float(out.at[0])), bf16(step[h] * next + d * float(out.at[1]))}});
  });
  for (int h = 0; h < 2; ++h) {
    const float ddt_sum = quad_sum(ddt[h]), dd_sum = quad_sum(dd[h]), column_sum = quad_sum(column_sums[h]);
    if (!rows.inside[h] || lane() % quads > 0) continue;
    of.sums.ddt.store(of.row(), rows.token[h], ddt_sum);
    of.sums.dd.store(of.row(), rows.token[h], dd_sum);
    of.sums.columns.store(of.row(), rows.token[h], double(column_sum));
  }
}

template <int W>
GYR_KERNEL head_gradient_kernel(Cut s, Tokens<bf16> in, Gradients g, Global<const float> skip, Global<bf16> dx, TokenSums<float> sums) {
  BlockIndex rest;
  const Index head = rest.take(s.num_heads);
  const Chunk k(s, rest.left);
  const HeadGradient<W> of(s, in, g, k, sums, head);
  if (thread_index() < span)
    for (Index l = thread_index(); l < k.length; l += span) sums.rows.store(of.row(), l, 0);
  for (Index s0 = 0; s0 < k.length; s0 += span) {
    const Rows rows(k, s0);
    FragmentD du[W / 8] = {};
    float step[2] = {}, column_sums[2] = {};
    for (int h = 0; h < 2; ++h)
      if (rows.inside[h]) step[h] = in.dt.load(k.first + rows.token[h], head);
    of.input_gradient(s0, rows, step, du, column_sums);
    finish_tokens(of, rows, step, skip.load(head), du, column_sums, dx);
  }
}

template <int W>
void launch_head_gradient(Device& dev, const Cut& s, const Tokens<bf16>& in, const Gradients& g, Tensor1<const float> d, const Global<bf16>& dx,
                          const TokenSums<float>& sums) {
  launch(dev, "ssd_backward", {s.all_chunks() * s.num_heads, tensor_threads, HeadGradient<W>::bytes(s)}, head_gradient_kernel<W>, s, in, g, d, dx,
         sums);
}

}  // namespace

bool token_gradients_by_tensor_cores(Device& dev, const Cut& s, const Tokens<bf16>& in, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const Global<const float>& entering, const States<const float>& of_states,
                                     const SsdInputGradient<bf16>& d_in, const TokenSums<float>& sums) {
  const Global<bf16> dx(d_in.x), db(d_in.b), dc(d_in.c);
  if (!fits_tensor_cores(s, in.x, in.b, in.c, dy, entering, of_states.between, of_states.last, dx, db, dc)) return false;
  const Gradients g{dy, entering, of_states};
  const Index groups = s.all_chunks() * s.num_groups * ceil_div(s.chunk_size, span) * sums.parts;
  launch(dev, "ssd_backward", {groups, tensor_threads, GroupGradient<Gradients, true>::bytes(s)}, group_gradient_kernel<true>, s, in, g, dc,
         sums.inflow);
  launch(dev, "ssd_backward", {groups, tensor_threads, GroupGradient<Gradients, false>::bytes(s)}, group_gradient_kernel<false>, s, in, g, db,
         sums.outflow);
  if (s.head_dim <= 64) launch_head_gradient<64>(dev, s, in, g, d, dx, sums);
  else launch_head_gradient<128>(dev, s, in, g, d, dx, sums);
  return true;
}

}  // namespace gyr::cuda::scan
