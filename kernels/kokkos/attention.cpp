// SPDX-License-Identifier: BSD-3-Clause
// Attention on the host: tiles of queries against tiles of keys, with online softmax. The query heads of one key/value
// head are stacked: row r = h tile + i of a stack is query i of head h of the group. Therefore one GEMM serves the
// whole group, and the GEMMs of dk and dv also sum over the group's heads.
//   M rows of a stack = group * tile,  n keys of a tile,  E head_dim of queries and keys,  V head_dim of values
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/instances.hpp"
#include "kernels/base/math.hpp"
#include "kernels/kokkos/dropout.hpp"
#include "kernels/kokkos/lanes.hpp"
#include "kernels/kokkos/operand.hpp"
#include "kernels/ops/attention.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"

namespace gyr::backend {

namespace {

template <class P>
void matmul(Device& dev, MatrixOp op_a, Matrix<const P> a, MatrixOp op_b, Matrix<const P> b, Matrix<Acc<P>> c, double alpha = 1, double beta = 0) {
  gemm<P, Acc<P>>(dev, op_a, a, op_b, b, c, alpha, beta, "attention_gemm");
}

constexpr Index stack_rows = 128, tile_keys = 512;  // a tile of scores fits the L2 cache

// One tile of queries of one sequence, for all query heads of one key/value head.
struct Stack {
  Index sequence, first_query, kv_head;
  Index first_row;   // row of the tile's first query in tensors of shape (B Tq, .)
  Index first_head;  // first query head of the group
  Index group, queries;
  Index rows() const { return group * queries; }

  KOKKOS_INLINE_FUNCTION Index source_row(Index r) const { return first_row + r % queries; }
  KOKKOS_INLINE_FUNCTION Index head(Index r) const { return first_head + r / queries; }
  template <class T>
  KOKKOS_INLINE_FUNCTION T* at(const Matrix<T>& x, Index r, Index width) const {
    return x.row(source_row(r)) + head(r) * width;
  }
};

// gather copies rows of x, laid out (B Tq, H width), to a stack (M, width). scatter copies them back.
template <class T, class P>
void gather(Device& dev, const Stack& stack, Matrix<const T> x, Matrix<P> to) {
  for_rows(
      dev, "attention_gather", to.rows, KOKKOS_LAMBDA(const Index r) {
        const T* const from = stack.at(x, r, to.columns);
        P* const out = to.row(r);
        for (Index e = 0; e < to.columns; ++e) out[e] = P(from[e]);
      });
}
template <class A>
void scatter(Device& dev, const Stack& stack, Matrix<const A> from, Matrix<A> x) {
  for_rows(
      dev, "attention_scatter", from.rows, KOKKOS_LAMBDA(const Index r) {
        const A* const in = from.row(r);
        A* const out = stack.at(x, r, from.columns);
        for (Index e = 0; e < from.columns; ++e) out[e] = in[e];
      });
}

// Splits the attention of a shape into stacks of queries and their tiles of keys.
struct Tiling {
  AttentionShape shape;
  Mask mask;
  VisibleKeys visible;
  Index group, queries, keys;  // query heads per key/value head, and largest number of queries and of keys of a tile

  Tiling(const AttentionShape& s, const Mask& m)
      : shape(s), mask(m), visible(s, m), group(s.num_heads / s.num_kv_heads),
        queries(std::clamp<Index>(stack_rows / group, 1, std::max<Index>(s.queries, 1))), keys(std::min(tile_keys, s.keys)) {}
  Index rows() const { return group * queries; }

  // Range [first, last) of the keys that are visible to row r of a stack, among the n keys from key j, relative to j.
  struct View {
    Index first, last;
  };
  KOKKOS_INLINE_FUNCTION View view(const Stack& s, Index r, Index j, Index n) const {
    const Index i = s.first_query + r % s.queries;
    const Index row = s.source_row(r);
    return {VisibleKeys::within(visible.hidden(i, mask.documents.reach(row)) - j, n),
            VisibleKeys::within(visible.seen(i, mask.documents.reach_ahead(row)) - j, n)};
  }

  // Applies dropout to x in the visible range `seen`, for row r of a stack and the keys from key j.
  template <class A>
  KOKKOS_INLINE_FUNCTION void drop(const Dropout& dropout, const Stack& s, Index r, Index j, const View& seen, A* x) const {
    const Index query = mask.first_query + s.first_query + r % s.queries, key = mask.first_key + j + seen.first;
    const Draws draws = dropout.of(dropout.at(*dropout.now), mask.first_sequence + s.sequence);
    drop_columns(dropout, draws, s.head(r), query, key, seen.last - seen.first, x + seen.first);
  }

  // Stack of a piece (a sequence and key/value head) whose first query is query i.
  Stack stack_of(Index piece, Index i) const {
    const Index b = piece / shape.num_kv_heads, kv = piece % shape.num_kv_heads;
    return {b, i, kv, b * shape.queries + i, kv * group, group, std::min(queries, shape.queries - i)};
  }
  // Range [first, last) of the keys that are visible to any query of a stack. Neither bound decreases from query to
  // query.
  View view(const Stack& s) const {
    const Index last = s.queries - 1;
    return {visible.hidden(s.first_query, mask.documents.planned_reach(s.first_row)),
            visible.seen(s.first_query + last, mask.documents.planned_reach_ahead(s.first_row + last))};
  }

  // Calls body(lane, piece) for every piece of work, that is a sequence and key/value head. The pieces run in parallel,
  // each on a lane (lanes.hpp: a device for one thread).
  template <class Body>
  void for_pieces(Device& dev, const char* kernel, const Body& body) const {
    for_lanes(dev, kernel, shape.batch * shape.num_kv_heads, body, !mask.documents.packed());
  }
  // For every stack of a piece: calls begin(stack), then step(stack, j, n) for each tile of n keys from key j, then
  // end(stack).
  template <class Begin, class Step, class End>
  void walk(Device& dev, Index piece, const Begin& begin, const Step& step, const End& end) const {
    if (dev.dry_run()) return count(dev, piece, begin, step, end);
    for (Index i = 0; i < shape.queries; i += queries) {
      const Stack s = stack_of(piece, i);
      begin(s);
      for (auto [j, last] = view(s); j < last; j += keys) step(s, j, std::min(keys, last - j));
      end(s);
    }
  }

  // Rows of the n keys, or values, from key j, for a stack's sequence and key/value head.
  template <class T>
  Matrix<T> tile(Matrix<T> x, const Stack& s, Index j, Index n) const {
    const Index width = x.columns / shape.num_kv_heads;
    return x.block(s.sequence * shape.keys + j, n, s.kv_head * width, width);
  }

 private:
  // walk() in a dry run. Stacks of the same height cost the same, and so do tiles of the same width, so each is run
  // once and counted repeatedly.
  template <class Begin, class Step, class End>
  void count(Device& dev, Index piece, const Begin& begin, const Step& step, const End& end) const {
    const Index full_tiles = shape.queries / queries, rest = shape.queries % queries;
    if (full_tiles > 0) count_stacks(dev, piece, 0, full_tiles, begin, step, end);
    if (rest > 0) count_stacks(dev, piece, full_tiles, 1, begin, step, end);
  }
  template <class Begin, class Step, class End>
  void count_stacks(Device& dev, Index piece, Index first, Index number, const Begin& begin, const Step& step, const End& end) const {
    std::vector<Index> tiles(keys + 1);  // number of tiles of each width
    for (Index i = first; i < first + number; ++i) {
      const auto [j, last] = view(stack_of(piece, i * queries));
      if (j >= last) continue;
      tiles[keys] += (last - j) / keys;
      tiles[(last - j) % keys] += 1;
    }
    const Stack s = stack_of(piece, first * queries);
    for_equal(dev, number, [&](Index) { begin(s); });
    for (Index n = 1; n <= keys; ++n) for_equal(dev, tiles[n], [&](Index) { step(s, 0, n); });
    for_equal(dev, number, [&](Index) { end(s); });
  }
};

// Maximum of m and n scores, with several accumulators: compilers do not vectorise a plain maximum loop, because its
// order matters if there are NaNs.
template <class A>
KOKKOS_INLINE_FUNCTION A largest(const A* s, Index n, A m) {
  constexpr Index lanes = 32;
  A best[lanes];
  for (Index i = 0; i < lanes; ++i) best[i] = m;
  Index j = 0;
  for (; j + lanes <= n; j += lanes)
    for (Index i = 0; i < lanes; ++i) best[i] = s[j + i] > best[i] ? s[j + i] : best[i];
  for (; j < n; ++j) best[0] = s[j] > best[0] ? s[j] : best[0];
  for (const A x : best) m = x > m ? x : m;
  return m;
}

// Online softmax step: a range of visible scores becomes p = exp(S - m'), and m and l of the row are updated. Returns
// exp(m - m').
template <class A>
KOKKOS_INLINE_FUNCTION A online_softmax(A* s, Index seen, A& m, A& l) {
  if (seen <= 0) return 1;
  const A top = largest(s, seen, m);
  for (Index j = 0; j < seen; ++j) s[j] = fast_exp(s[j] - top);
  A sum = 0;  // a separate loop, because the compiler would vectorise neither part of a combined one
  for (Index j = 0; j < seen; ++j) sum += s[j];
  const A shrink = fast_exp(m - top);  // 0 for a row without a visible key so far: m = -infinity, top finite
  m = top;
  l = l * shrink + sum;
  return shrink;
}

// Applies the soft cap to the scores in [first, last).
template <class A>
KOKKOS_INLINE_FUNCTION void apply_cap(const SoftCap<A>& cap, A* s, Index first, Index last) {
  if (!cap.caps()) return;
  for (Index c = first; c < last; ++c) s[c] = cap.cap * fast_tanh(s[c] * cap.inverse);
}

// A distance bias or its gradient. at(h, i, j): the value for head h, query i and key j of a block, followed by those
// of the next keys.
template <class A>
struct Distances {
  A* data = nullptr;
  Index columns = 0, first = 0;

  Distances() = default;
  Distances(const AnyTensor2& x, const DistanceBias& bias, const Mask& mask)
      : data(bias ? x.as<std::remove_const_t<A>>().data() : nullptr), columns(x.columns), first(bias.first_column(mask)) {}
  KOKKOS_INLINE_FUNCTION A* at(Index h, Index i, Index j) const { return data + h * columns + first + j - i; }
};

// Adds the distance bias to the visible scores [first, last), for keys counted from key j.
template <class A>
KOKKOS_INLINE_FUNCTION void add_bias(const Distances<const A>& bias, Index head, Index i, Index j, A* s, Index first, Index last) {
  if (!bias.data) return;
  const A* const b = bias.at(head, i, j);
  for (Index c = first; c < last; ++c) s[c] += b[c];
}

// Destination for values of type P computed from the scores s: s itself if P is A, otherwise the separate buffer.
template <class P, class A>
Matrix<P> in_place_or(Matrix<A> s, Tensor2<P> storage) {
  if constexpr (std::is_same_v<P, A>) return s;
  else return part_of(storage, s.rows, s.columns);
}

// Stores s to p in [first, last), and zeros in the rest of n elements. p may be s.
template <class A, class P>
KOKKOS_INLINE_FUNCTION void store(const A* s, Index first, Index last, Index n, P* p) {
  for (Index c = 0; c < first; ++c) p[c] = P(A(0));
  if constexpr (!std::is_same_v<P, A>)
#pragma GCC ivdep
    for (Index c = first; c < last; ++c) p[c] = P(s[c]);
  for (Index c = last; c < n; ++c) p[c] = P(A(0));
}

}  // namespace

namespace {

// Loads a stack's part of the attention state, or initialises it without reading if `carry` is Carry::fresh.
template <class A>
void begin_state(Device& dev, const Stack& stack, Carry carry, AttentionState<A> state, Matrix<A> out, Tensor1<A> m, Tensor1<A> l) {
  if (carry == Carry::continued) gather(dev, stack, Matrix<const A>(state.o), out);
  for_rows(
      dev, "attention_begin", out.rows, KOKKOS_LAMBDA(const Index r) {
        const bool fresh = carry == Carry::fresh;
        m(r) = fresh ? -std::numeric_limits<A>::infinity() : state.m(stack.source_row(r), stack.head(r));
        l(r) = fresh ? A(0) : state.l(stack.source_row(r), stack.head(r));
        for (Index e = 0; fresh && e < out.columns; ++e) out(r, e) = 0;
      });
}

// P: type of the GEMM operands. Scores have type Acc<T>, and p = exp(S - m) is an operand again.
template <class T, class P>
void forward(Device& dev, const Tiling& tiling, Index piece, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
             Carry carry, AttentionState<Acc<T>> state) {
  using A = Acc<T>;
  const Index E = tiling.shape.head_dim, V = tiling.shape.v_head_dim;
  const SoftCap<A> cap(scores.cap);
  const Distances<const A> bias(scores.bias.values, scores.bias, tiling.mask);
  const Scope scope(dev.scratch);
  const auto q_stack = dev.scratch.tensor<P>(tiling.rows(), E);
  const auto o_stack = dev.scratch.tensor<A>(tiling.rows(), V), tile = dev.scratch.tensor<A>(tiling.rows(), tiling.keys);
  const auto narrow = scratch_for<P, A>(dev, tiling.rows(), tiling.keys);
  const auto m = dev.scratch.tensor<A>(tiling.rows()), l = dev.scratch.tensor<A>(tiling.rows());
  const auto k_copy = scratch_for<P, T>(dev, tiling.keys, E), v_copy = scratch_for<P, T>(dev, tiling.keys, V);

  const auto begin = [&](const Stack& stack) {
    const Index M = stack.rows();
    const Matrix<P> queries = rows(q_stack, 0, M);
    const Matrix<A> out = rows(o_stack, 0, M);
    if (const auto run = dev.launch("attention", 0, double(M) * (E * (sizeof(T) + sizeof(P)) + V * sizeof(A)))) {
      gather(dev, stack, q, queries);
      begin_state(dev, stack, carry, state, out, m, l);
    }
  };
  const auto step = [&](const Stack& stack, Index j, Index n) {
    const Index M = stack.rows();
    const Matrix<const P> queries = rows(q_stack, 0, M);
    const Matrix<A> out = rows(o_stack, 0, M), s(tile.data(), M, n, n);
    const Matrix<P> weights = in_place_or<P>(s, narrow);
    const auto keys = operand<P>(dev, tiling.tile(k, stack, j, n), k_copy);
    const auto values = operand<P>(dev, tiling.tile(v, stack, j, n), v_copy);
    matmul<P>(dev, MatrixOp::none, queries, MatrixOp::transpose, keys, s, scores.scale);
    if (const auto run = dev.launch("attention", ((cap.caps() ? 7.0 : 4.0) + (scores.bias ? 1 : 0)) * M * n, double(sizeof(A) + sizeof(P)) * M * n))
      for_rows(
          dev, "attention_softmax", M, KOKKOS_LAMBDA(const Index r) {
            const auto [first, last] = tiling.view(stack, r, j, n);
            P* const p = weights.row(r);
            apply_cap(cap, s.row(r), first, last);
            add_bias(bias, stack.head(r), stack.first_query + r % stack.queries, j, s.row(r), first, last);
            const A shrink = online_softmax(s.row(r) + first, last - first, m(r), l(r));
            if (scores.dropout.drops()) tiling.drop(scores.dropout, stack, r, j, {first, last}, s.row(r));
            store(s.row(r), first, last, n, p);
            A* const o = out.row(r);
            for (Index e = 0; e < V; ++e) o[e] *= shrink;
          });
    matmul<P>(dev, MatrixOp::none, weights, MatrixOp::none, values, out, 1, 1);
  };
  const auto end = [&](const Stack& stack) {
    const Index M = stack.rows();
    const Matrix<A> out = rows(o_stack, 0, M);
    if (const auto run = dev.launch("attention", 0, 2.0 * sizeof(A) * M * V)) {
      scatter(dev, stack, Matrix<const A>(out), Matrix<A>(state.o));
      for_rows(
          dev, "attention_end", M, KOKKOS_LAMBDA(const Index r) {
            state.m(stack.source_row(r), stack.head(r)) = m(r);
            state.l(stack.source_row(r), stack.head(r)) = l(r);
          });
    }
  };
  tiling.walk(dev, piece, begin, step, end);
}

}  // namespace

template <class T>
void attention(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
               Matrix<const T> v, Carry carry, AttentionState<Acc<T>> state) {
  const Tiling tiling(shape, mask);
  with_operands<T>(dev, [&]<class P>(std::type_identity<P>) {
    tiling.for_pieces(dev, "attention", [&](Device& lane, Index piece) { forward<T, P>(lane, tiling, piece, scores, q, k, v, carry, state); });
  });
}

template <class A>
void attention_merge(Device& dev, const AttentionShape& shape, AttentionState<A> other, AttentionState<A> state) {
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  for_rows(
      dev, "attention_merge", R, KOKKOS_LAMBDA(const Index r) {
        for (Index h = 0; h < shape.num_heads; ++h) {
          if (other.l(r, h) == 0) continue;  // the other state has no visible key yet, and both m may be -infinity
          A &m = state.m(r, h), &l = state.l(r, h);
          const A top = m > other.m(r, h) ? m : other.m(r, h), keep = fast_exp(m - top), join = fast_exp(other.m(r, h) - top);
          m = top;
          l = keep * l + join * other.l(r, h);
          A* const o = &state.o(r, h * V);
          const A* const more = &other.o(r, h * V);
#pragma GCC ivdep
          for (Index e = 0; e < V; ++e) o[e] = keep * o[e] + join * more[e];
        }
      });
}

template <class T>
void attention_finish(Device& dev, const AttentionShape& shape, AttentionState<Acc<T>> state, Tensor2<T> out, Tensor2<Acc<T>> lse,
                      Tensor1<const Acc<T>> sinks) {
  using A = Acc<T>;
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  for_rows(
      dev, "attention_finish", R, KOKKOS_LAMBDA(const Index r) {
        for (Index h = 0; h < shape.num_heads; ++h) {
          const auto [top, l, shrink] = with_sink(sinks.span() > 0 ? sinks(h) : -std::numeric_limits<A>::infinity(), state.m(r, h), state.l(r, h));
          const A inverse = l > 0 ? shrink / l : A(0);
          lse(r, h) = l > 0 ? top + std::log(l) : -std::numeric_limits<A>::infinity();
          const A* const o = &state.o(r, h * V);
          T* const y = &out(r, h * V);
#pragma GCC ivdep  // out may be the memory of state.o
          for (Index e = 0; e < V; ++e) y[e] = T(o[e] * inverse);
        }
      });
}

template <class A>
void attention_sink_terms(Device& dev, Tensor1<const A> sinks, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms) {
  const Index heads = terms.extent(1);
  for_rows(
      dev, "attention_sinks", terms.extent(0), KOKKOS_LAMBDA(const Index r) {
        for (Index h = 0; h < heads; ++h) terms(r, h) = -fast_exp(sinks(h) - lse(r, h)) * delta(r, h);
      });
}

template <class T>
void attention_delta(Device& dev, const AttentionShape& shape, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta) {
  using A = Acc<T>;
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  for_rows(
      dev, "attention_delta", R, KOKKOS_LAMBDA(const Index r) {
        for (Index h = 0; h < shape.num_heads; ++h) {
          const T *const dy = &dout(r, h * V), *const y = &out(r, h * V);
          A sum = 0;
          for (Index e = 0; e < V; ++e) sum += A(dy[e]) * A(y[e]);
          delta(r, h) = sum;
        }
      });
}

namespace {

// Adds the bias gradient of a tile, ds / scale, to the sums (group, distances) of a piece (a sequence and key/value
// head).
template <class A>
void add_bias_gradient(Device& dev, const Tiling& tiling, const Stack& stack, Index j, const Matrix<A>& ds, double scale, const Distances<A>& sums) {
  const A inverse = A(1 / scale);
  for_rows(
      dev, "attention_bias_backward", stack.group, KOKKOS_LAMBDA(const Index g) {
        for (Index i = 0; i < stack.queries; ++i) {
          const Index r = g * stack.queries + i;
          const auto [first, last] = tiling.view(stack, r, j, ds.columns);
          A* const sum = sums.at(g, stack.first_query + i, j);
          const A* const d = ds.row(r);
          for (Index c = first; c < last; ++c) sum[c] += d[c] * inverse;
        }
      });
}

// Adds the bias gradients of all pieces (a sequence and key/value head each) to `gradient`, sequence by sequence.
template <class A>
void add_pieces(Device& dev, const AttentionShape& s, const AnyTensor2& pieces, const AnyTensor2& gradient) {
  const Index columns = gradient.columns, heads = s.num_heads, batch = s.batch;
  const auto from = pieces.as<const A>();
  const auto to = gradient.as<A>();
  if (const auto run = dev.launch("attention_backward", double(batch) * heads * columns, sizeof(A) * double(batch + 2) * heads * columns))
    for_rows(
        dev, "attention_bias_sum", heads, KOKKOS_LAMBDA(const Index h) {
          for (Index b = 0; b < batch; ++b)
            for (Index c = 0; c < columns; ++c) to(h, c) += from(b * heads + h, c);
        });
}

// In the tile of a stack and the keys from key j, the scores s become p, and dp becomes ds. Both are also stored as
// GEMM operands.
template <class A, class P>
void scores_backward(Device& dev, const Tiling& tiling, const Stack& stack, Index j, const ScoreRule& scores, const Distances<const A>& bias,
                     Tensor2<const A> lse, Tensor2<const A> delta, const Matrix<A>& s, const Matrix<A>& ds, const Matrix<P>& weights,
                     const Matrix<P>& dweights) {
  const SoftCap<A> cap(scores.cap);
  const Index n = s.columns;
  for_rows(
      dev, "attention_scores_backward", s.rows, KOKKOS_LAMBDA(const Index r) {
        const auto [first, last] = tiling.view(stack, r, j, n);
        const A top = lse(stack.source_row(r), stack.head(r)), mean = delta(stack.source_row(r), stack.head(r)), factor = A(scores.scale);
        A *const p = s.row(r), *const d = ds.row(r);
        apply_cap(cap, p, first, last);
        add_bias(bias, stack.head(r), stack.first_query + r % stack.queries, j, p, first, last);
        if (scores.dropout.drops()) tiling.drop(scores.dropout, stack, r, j, {first, last}, d);
#pragma GCC ivdep
        for (Index c = first; c < last; ++c) {
          const A slope = cap.slope(p[c]);
          p[c] = fast_exp(p[c] - top);
          d[c] = p[c] * (d[c] - mean) * factor * slope;
        }
        if (scores.dropout.drops()) tiling.drop(scores.dropout, stack, r, j, {first, last}, p);
        store(p, first, last, n, weights.row(r));
        store(d, first, last, n, dweights.row(r));
      });
}

// bias_sums: (batch * num_heads, distances) if the scores have a bias, otherwise empty.
template <class T, class P>
void backward(Device& dev, const Tiling& tiling, Index piece, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
              Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv,
              const AnyTensor2& bias_sums) {
  using A = Acc<T>;
  const Distances<const A> bias(scores.bias.values, scores.bias, tiling.mask);
  Distances<A> sums(bias_sums, scores.bias, tiling.mask);
  if (scores.bias) sums.data += piece * tiling.group * sums.columns;
  const Index E = tiling.shape.head_dim, V = tiling.shape.v_head_dim;
  const SoftCap<A> cap(scores.cap);
  const Scope scope(dev.scratch);
  const auto q_stack = dev.scratch.tensor<P>(tiling.rows(), E), dout_stack = dev.scratch.tensor<P>(tiling.rows(), V);
  const auto dq_stack = dev.scratch.tensor<A>(tiling.rows(), E);
  const auto tile = dev.scratch.tensor<A>(tiling.rows(), tiling.keys), dtile = dev.scratch.tensor<A>(tiling.rows(), tiling.keys);
  const auto narrow = scratch_for<P, A>(dev, tiling.rows(), tiling.keys), dnarrow = scratch_for<P, A>(dev, tiling.rows(), tiling.keys);
  const auto k_copy = scratch_for<P, T>(dev, tiling.keys, E), v_copy = scratch_for<P, T>(dev, tiling.keys, V);

  const auto begin = [&](const Stack& stack) {
    const Index M = stack.rows();
    const Matrix<P> queries = rows(q_stack, 0, M), douts = rows(dout_stack, 0, M);
    const Matrix<A> dqueries = rows(dq_stack, 0, M);
    if (const auto run = dev.launch("attention_backward", 0, double(M) * (E * (sizeof(T) + sizeof(P) + sizeof(A)) + V * (sizeof(T) + sizeof(P))))) {
      gather(dev, stack, q, queries);
      gather(dev, stack, Matrix<const T>(dout), douts);
      gather(dev, stack, Matrix<const A>(dq), dqueries);
    }
  };
  const auto step = [&](const Stack& stack, Index j, Index n) {
    const Index M = stack.rows();
    const Matrix<const P> queries = rows(q_stack, 0, M), douts = rows(dout_stack, 0, M);
    const Matrix<A> dqueries = rows(dq_stack, 0, M), s(tile.data(), M, n, n), ds(dtile.data(), M, n, n);
    const Matrix<P> weights = in_place_or<P>(s, narrow), dweights = in_place_or<P>(ds, dnarrow);
    const auto keys = operand<P>(dev, tiling.tile(k, stack, j, n), k_copy);
    const auto values = operand<P>(dev, tiling.tile(v, stack, j, n), v_copy);
    matmul<P>(dev, MatrixOp::none, queries, MatrixOp::transpose, keys, s, scores.scale);
    matmul<P>(dev, MatrixOp::none, douts, MatrixOp::transpose, values, ds);
    if (const auto run =
            dev.launch("attention_backward", ((cap.caps() ? 12.0 : 5.0) + (scores.bias ? 3 : 0)) * M * n, 2.0 * (sizeof(A) + sizeof(P)) * M * n)) {
      scores_backward(dev, tiling, stack, j, scores, bias, lse, delta, s, ds, weights, dweights);
      if (scores.bias) add_bias_gradient(dev, tiling, stack, j, ds, scores.scale, sums);
    }
    matmul<P>(dev, MatrixOp::transpose, weights, MatrixOp::none, douts, tiling.tile(dv, stack, j, n), 1, 1);
    matmul<P>(dev, MatrixOp::transpose, dweights, MatrixOp::none, queries, tiling.tile(dk, stack, j, n), 1, 1);
    matmul<P>(dev, MatrixOp::none, dweights, MatrixOp::none, keys, dqueries, 1, 1);
  };
  const auto end = [&](const Stack& stack) {
    const Matrix<const A> dqueries = rows(dq_stack, 0, stack.rows());
    if (const auto run = dev.launch("attention_backward", 0, 2.0 * sizeof(A) * stack.rows() * E)) scatter(dev, stack, dqueries, dq);
  };
  tiling.walk(dev, piece, begin, step, end);
}

}  // namespace

template <class T>
void attention_backward(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
                        Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq,
                        Matrix<Acc<T>> dk, Matrix<Acc<T>> dv) {
  const Tiling tiling(shape, mask);
  const Scope scope(dev.scratch);
  AnyTensor2 sums;
  if (scores.bias) {
    sums = take(dev.scratch, dtype_of<Acc<T>>(), shape.batch * shape.num_heads, scores.bias.values.columns);
    fill(dev, sums.flat(), 0);
  }
  with_operands<T>(dev, [&]<class P>(std::type_identity<P>) {
    tiling.for_pieces(dev, "attention_backward",
                      [&](Device& lane, Index piece) { backward<T, P>(lane, tiling, piece, scores, q, k, v, dout, lse, delta, dq, dk, dv, sums); });
  });
  if (scores.bias) add_pieces<Acc<T>>(dev, shape, sums, scores.bias.gradient);
}

GYR_ALL_ATTENTION

}  // namespace gyr::backend
