// SPDX-License-Identifier: BSD-3-Clause
// Gradients of the scan: from dy and the gradients dS of the states that leave the chunks to the gradients of the tokens.
// u = dt x; W(l,s) = (C_l . B_s) exp(s_l - s_s); other symbols as in kernels/ops/ssd_chunk.hpp:
//   dU_s = exp(s_Q - s_s) dS B_s + sum_{l>=s} W(l,s) dy_l,   dx = dt dU + D dy
//   dC_l = sum_h exp(s_l) S' dy_l + sum_{s<=l} dG(l,s) B_s,   I_l = C_l . (state term of dC_l of one head)
//   dB_s = sum_h exp(s_Q - s_s) dS' u_s + sum_{l>=s} dG(l,s) C_l,   F_s = B_s . (state term of dB_s of one head)
//   dG = sum_h dW exp(s_l - s_s),   dW(l,s) = dy_l . u_s,   E = dW W,   J = exp(s_Q) S . dS
#include "kernels/cuda/ssm/ssd_sm80.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::cuda::scan {

namespace {

// Sums v over the threads with the same y. The thread with x = 0 gets the result.
template <class V>
GYR_DEVICE V row_sum(V v) {
  for (int with = side / 2; with > 0; with /= 2) v += shuffle_xor(v, with);
  return v;
}

template <class T>
struct Gradients {
  Global<const T> dy;
  Global<const Acc<T>> entering;   // entering states, (B chunks, H P N)
  States<const Acc<T>> of_states;  // gradients of the entering states (in States::between)
};

// One block computes dC or dB of a group for a tile of tokens and state dimensions. dC sums over earlier tokens, dB
// over later tokens.
template <class T, bool of_c>
struct GroupGradient {
  using A = Acc<T>;
  const ChunkGrid& s;
  const Tokens<T>& in;
  const Gradients<T>& g;
  const Chunk& k;
  Index r0, n0, group;
  Shared<A> operands, square;

  GYR_DEVICE A token(const Global<const T>& x, Index l, Index column) const { return l < k.length ? A(x.load(k.first + l, column)) : A(0); }
  GYR_DEVICE A mine(Index head, Index l, Index p) const { return token(of_c ? g.dy : in.x, l, head * s.head_dim + p); }
  GYR_DEVICE A other(Index head, Index l, Index p) const { return token(of_c ? in.x : g.dy, l, head * s.head_dim + p); }
  GYR_DEVICE Index first_head() const { return group * s.heads_per_group(); }

  // Adds the state term of one head to `sum`. Writes its dot product with the C or B of each token (I or F) to `state_term`.
  GYR_DEVICE void add_state(Index head, const Global<A>& state_term, A (&sum)[4][wide<A>]) const {
    const HeadDecay<A> decay(s, k, in.decays, head);
    A part[4][wide<A>] = {};
    const auto multiply = [&](const Global<const A>& states, Index row) {
      const auto state =
          across([&](int n, Index p) { return n0 + n < s.state_size ? states.load(row, (head * s.head_dim + p) * s.state_size + n0 + n) : A(0); });
      add_gemm(s.head_dim, along([&](int l, Index p) { return mine(head, r0 + l, p); }), state, operands, part);
    };
    if (of_c) multiply(g.entering, k.number);
    else if (g.of_states.stores_leaving_state(s, k.number)) g.of_states.with_leaving_state(s, k.number, multiply);
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Index l = r0 + my_y() + side * i;
      const bool inside = l < k.length;
      const A factor = !inside ? A(0) : of_c ? decay.from_start(l) : decay.to_end(l) * in.dt.load(k.first + l, head);
      A product = 0;
      GYR_UNROLL
      for (int j = 0; j < wide<A>; ++j) {
        const Index n = n0 + my_x() + side * j;
        sum[i][j] += part[i][j] *= factor;
        if (n < s.state_size) product += part[i][j] * token(of_c ? in.c : in.b, l, group * s.state_size + n);
      }
      product = row_sum(product);
      const Index parts = ceil_div(s.state_size, columns_of<A>);
      if (my_x() == 0 && inside) state_term.store((k.number * s.num_heads + head) * parts + n0 / columns_of<A>, l, product);
    }
  }

  // Computes dG between this block's tokens and the tile of tokens from o0, summed over heads, into `square`.
  GYR_DEVICE void find_weights(Index o0) const {
    A sum[4][4] = {};
    for (Index head = first_head(); head < first_head() + s.heads_per_group(); ++head) {
      const HeadDecay<A> decay(s, k, in.decays, head);
      A product[4][4] = {};
      add_gemm(s.head_dim, along([&](int l, Index p) { return mine(head, r0 + l, p); }),
                  along([&](int l, Index p) { return other(head, o0 + l, p); }), operands, product);
      each_of_tile<4>([&](int i, int j, int row, int column) {
        const Index l = of_c ? r0 + row : o0 + column, t = of_c ? o0 + column : r0 + row;
        if (l < k.length && t <= l && t >= k.begin(s, l)) sum[i][j] += product[i][j] * in.dt.load(k.first + t, head) * decay.between(l, t);
      });
    }
    each_of_tile<4>([&](int i, int j, int row, int column) { square.store(row * square_stride + column, sum[i][j]); });
  }

  GYR_DEVICE void add_tokens(Index o0, A (&sum)[4][wide<A>]) const {
    find_weights(o0);
    const auto rows =
        across([&](int n, Index l) { return n0 + n < s.state_size ? token(of_c ? in.b : in.c, o0 + l, group * s.state_size + n0 + n) : A(0); });
    add_gemm(tile, along([&](int r, Index o) { return square.load(r * square_stride + int(o)); }), rows, operands, sum);
  }
};

template <class T, bool of_c>
GYR_KERNEL group_gradient_kernel(ChunkGrid s, Tokens<T> in, Gradients<T> g, Global<T> out, Global<Acc<T>> state_term) {
  using A = Acc<T>;
  BlockIndex rest;
  const Index n0 = rest.take(ceil_div(s.state_size, columns_of<A>)) * columns_of<A>, r0 = rest.take(ceil_div(s.chunk_size, tile)) * tile;
  const Index group = rest.take(s.num_groups);
  const Chunk k(s, rest.left);
  if (r0 >= k.length) return;
  const GroupGradient<T, of_c> of{s, in, g, k, r0, n0, group, Shared<A>(), Shared<A>(gemm_tile_elements<A> * int(sizeof(A)))};
  A sum[4][wide<A>] = {};
  for (Index head = of.first_head(); head < of.first_head() + s.heads_per_group(); ++head) of.add_state(head, state_term, sum);
  if (of_c)
    for (Index o0 = k.begin(s, r0) / tile * tile; o0 <= r0; o0 += tile) of.add_tokens(o0, sum);
  else
    for (Index o0 = r0; o0 < k.length && k.begin(s, o0) < r0 + tile; o0 += tile) of.add_tokens(o0, sum);
  each_of_tile<wide<A>>([&](int i, int j, int row, int column) {
    if (r0 + row < k.length && n0 + column < s.state_size) out.store(k.first + r0 + row, group * s.state_size + n0 + column, T(sum[i][j]));
  });
}

// One block processes one head of a chunk. It loops over the tiles of tokens, and for each tile over that tile and all
// later ones.
template <class T>
struct HeadGradient {
  using A = Acc<T>;
  const ChunkGrid& s;
  const Tokens<T>& in;
  const Gradients<T>& g;
  const Chunk& k;
  const TokenSums<A>& sums;
  Index head;
  HeadDecay<A> decay;
  Shared<A> operands, square;
  Shared<double> row_sums;

  GYR_DEVICE Index row() const { return k.number * s.num_heads + head; }
  GYR_DEVICE A token(const Global<const T>& x, Index l, Index p) const {
    return l < k.length && p < s.head_dim ? A(x.load(k.first + l, head * s.head_dim + p)) : A(0);
  }
  GYR_DEVICE A shared_token(const Global<const T>& x, Index l, Index n) const {
    return l < k.length ? A(x.load(k.first + l, head / s.heads_per_group() * s.state_size + n)) : A(0);
  }

  // State term of dU: exp(s_Q - s_s) dS B_s for the tokens from s0 and the channels from p0.
  GYR_DEVICE void from_state(Index s0, Index p0, A (&du)[4][wide<A>]) const {
    if (!g.of_states.stores_leaving_state(s, k.number)) return;
    g.of_states.with_leaving_state(s, k.number, [&](const Global<const A>& states, Index at) {
      const auto state =
          along([&](int p, Index n) { return p0 + p < s.head_dim ? states.load(at, (head * s.head_dim + p0 + p) * s.state_size + n) : A(0); });
      add_gemm(s.state_size, along([&](int t, Index n) { return shared_token(in.b, s0 + t, n); }), state, operands, du);
    });
    scale_rows(du, [&](int t) { return s0 + t < k.length ? decay.to_end(s0 + t) : A(0); });
  }

  // Computes W(l,s) for the tiles of tokens s from s0 and l from l0 into `square`, with rows s. If `once`, also adds E
  // to its row and column sums.
  GYR_DEVICE void find_weights(Index s0, Index l0, bool once, double (&column_sums)[4]) const {
    A weight[4][4] = {}, slope[4][4] = {};
    add_gemm(s.state_size, along([&](int t, Index n) { return shared_token(in.b, s0 + t, n); }),
                along([&](int l, Index n) { return shared_token(in.c, l0 + l, n); }), operands, weight);
    each_of_tile<4>([&](int i, int j, int row, int column) {
      const Index l = l0 + column, t = s0 + row;
      const bool seen = l < k.length && t <= l && t >= k.begin(s, l);
      weight[i][j] = seen ? weight[i][j] * decay.between(l, t) : A(0);
      square.store(row * square_stride + column, weight[i][j]);
    });
    if (!once) return;
    add_gemm(s.head_dim, along([&](int t, Index p) { return token(in.x, s0 + t, p); }),
                along([&](int l, Index p) { return token(g.dy, l0 + l, p); }), operands, slope);
    GYR_UNROLL
    for (int j = 0; j < 4; ++j) {
      double row_sum = 0;
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Index t = s0 + my_y() + side * i;
        const A e = t < l0 + my_x() + side * j && t < k.length ? in.dt.load(k.first + t, head) * slope[i][j] * weight[i][j] : A(0);
        row_sum += double(e), column_sums[i] += double(e);
      }
      row_sums.store(my_y() * tile + my_x() + side * j, row_sum);
    }
    sync_block();
    if (const Index l = l0 + thread_index(); thread_index() < tile && l < k.length) {
      double all = sums.rows.load(row(), l);
      for (int y = 0; y < side; ++y) all += row_sums.load(y * tile + thread_index());
      sums.rows.store(row(), l, all);
    }
  }

  // dU for the tile of tokens from s0 and channels from p0.
  GYR_DEVICE void input_gradient(Index s0, Index p0, double (&column_sums)[4], A (&du)[4][wide<A>]) const {
    from_state(s0, p0, du);
    for (Index l0 = s0; l0 < k.length && k.begin(s, l0) < s0 + tile; l0 += tile) {
      find_weights(s0, l0, p0 == 0, column_sums);
      add_gemm(tile, along([&](int t, Index l) { return square.load(t * square_stride + int(l)); }),
                  across([&](int p, Index l) { return token(g.dy, l0 + l, p0 + p); }), operands, du);
    }
  }
};

template <class T>
GYR_KERNEL head_gradient_kernel(ChunkGrid s, Tokens<T> in, Gradients<T> g, Global<const Acc<T>> skip, Global<T> dx, TokenSums<Acc<T>> sums) {
  using A = Acc<T>;
  BlockIndex rest;
  const Index head = rest.take(s.num_heads), P = s.head_dim;
  const Chunk k(s, rest.left);
  constexpr int square_at = gemm_tile_elements<A> * int(sizeof(A)), rows_at = square_at + square_tile_elements * int(sizeof(A));
  const HeadGradient<T> of{s, in, g, k, sums, head, HeadDecay<A>(s, k, in.decays, head), Shared<A>(), Shared<A>(square_at), Shared<double>(rows_at)};
  if (thread_index() < tile)
    for (Index l = thread_index(); l < k.length; l += tile) sums.rows.store(of.row(), l, 0);
  for (Index s0 = 0; s0 < k.length; s0 += tile) {
    double column_sums[4] = {};
    A ddt[4] = {}, dd[4] = {};
    for (Index p0 = 0; p0 < P; p0 += columns_of<A>) {
      A du[4][wide<A>] = {};
      of.input_gradient(s0, p0, column_sums, du);
      each_of_tile<wide<A>>([&](int i, int j, int t, int p) {
        if (s0 + t >= k.length || p0 + p >= P) return;
        const A x = of.token(in.x, s0 + t, p0 + p), out = of.token(g.dy, s0 + t, p0 + p);
        dx.store(k.first + s0 + t, head * P + p0 + p, T(in.dt.load(k.first + s0 + t, head) * du[i][j] + skip.load(head) * out));
        ddt[i] += x * du[i][j], dd[i] += x * out;
      });
    }
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Index t = s0 + my_y() + side * i;
      const A ddt_sum = row_sum(ddt[i]), dd_sum = row_sum(dd[i]);
      const double column_sum = row_sum(column_sums[i]);
      if (my_x() > 0 || t >= k.length) continue;
      sums.ddt.store(of.row(), t, ddt_sum), sums.dd.store(of.row(), t, dd_sum), sums.columns.store(of.row(), t, column_sum);
    }
  }
}

template <class A>
GYR_KERNEL through_kernel(ChunkGrid s, Decays<A> decays, Global<const A> entering, States<const A> gradients, Global<A> through) {
  BlockIndex rest;
  const Index head = rest.take(s.num_heads);
  const Chunk k(s, rest.left);
  const A over = HeadDecay<A>(s, k, decays, head).over();
  A sum = 0;
  if (over != 0 && gradients.stores_leaving_state(s, k.number))
    gradients.with_leaving_state(s, k.number, [&](const Global<const A>& x, Index row) {
      for (Index i = head * s.head_elements() + thread_index(); i < (head + 1) * s.head_elements(); i += block_threads())
        sum += entering.load(k.number, i) * x.load(row, i);
    });
  sum = block_sum(sum, Shared<A>());
  if (thread_index() == 0) through.store(k.number, head, over * sum);
}

}  // namespace

template <class T>
void token_gradients(Device& dev, const ChunkGrid& s, const Tokens<T>& in, Tensor1<const Acc<T>> d, Global<const T> dy, Global<const Acc<T>> entering,
                     const States<const Acc<T>>& of_states, [[maybe_unused]] const TensorCoreScratch& tensors, [[maybe_unused]] bool walked,
                     const SsdInputGradient<T>& d_in, TokenSums<Acc<T>>& sums) {
  using A = Acc<T>;
  if constexpr (std::is_same_v<T, bf16>)
    if (token_gradients_by_tensor_cores(dev, s, in, d, dy, entering, of_states, tensors, walked, d_in, sums)) return;
  sums.stretch = s.chunk_size, sums.throughs = 1;
  constexpr int bytes = (gemm_tile_elements<A> + square_tile_elements) * int(sizeof(A));
  const Gradients<T> g{dy, entering, of_states};
  const Grid groups{s.all_chunks() * s.num_groups * ceil_div(s.chunk_size, tile) * sums.parts, threads, bytes};
  launch(dev, "ssd_backward", {s.all_chunks() * s.num_heads, usual_threads, usual_warps * int(sizeof(A))}, through_kernel<A>, s, in.decays, entering,
         of_states, sums.through);
  launch(dev, "ssd_backward", groups, group_gradient_kernel<T, true>, s, in, g, d_in.c, sums.inflow);
  launch(dev, "ssd_backward", groups, group_gradient_kernel<T, false>, s, in, g, d_in.b, sums.outflow);
  launch(dev, "ssd_backward", {s.all_chunks() * s.num_heads, threads, (bytes + 7) / 8 * 8 + tile * side * int(sizeof(double))},
         head_gradient_kernel<T>, s, in, g, d, d_in.x, sums);
}

#define GYR_GRADIENT(T)                                                                                                                 \
  template void token_gradients<T>(Device&, const ChunkGrid&, const Tokens<T>&, Tensor1<const Acc<T>>, Global<const T>, Global<const Acc<T>>, \
                                   const States<const Acc<T>>&, const TensorCoreScratch&, bool, const SsdInputGradient<T>&, TokenSums<Acc<T>>&);
GYR_SCALARS(GYR_GRADIENT)
#undef GYR_GRADIENT

}  // namespace gyr::cuda::scan
