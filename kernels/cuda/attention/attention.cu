// SPDX-License-Identifier: BSD-3-Clause
// Attention for any scalar type and head widths up to 256, in the forward values of up to 512 and keys of any width, without tensor cores. One warp computes one query of a head
// (output and dQ), or one key of a key head (dK and dV). Its lanes process 32 keys (or queries) at a time, then the
// columns of the head. Each output element is accumulated by a single warp.
#include <algorithm>
#include <limits>

#include "kernels/ops/attention.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/cuda/attention/attention.hpp"
#include "kernels/cuda/attention/cudnn_attention.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// The columns of one head in row `row` of x.
template <class T>
struct HeadRow {
  Global<const T> x;
  Index row, first, width;

  GYR_DEVICE Acc<T> operator()(Index e) const { return Acc<T>(x.load(row, first + e)); }
  template <class Other>
  GYR_DEVICE Acc<T> dot(const Other& other) const {
    Acc<T> sum = 0;
    for (Index e = 0; e < width; ++e) sum += (*this)(e)*other(e);
    return sum;
  }
};

// One value per column of a head, distributed over the lanes of a warp.
template <class A, int P = parts>
struct Columns {
  A at[P] = {};

  // Adds the sum over l < count of (factor of lane l) * rows(l).
  template <class Rows>
  GYR_DEVICE void add(A factor, int count, const Rows& rows, Index width) {
    for (int l = 0; l < count; ++l) {
      const A f = shuffle(factor, l);
      const auto row = rows(l);
      for (int p = 0; p < P; ++p)
        if (const Index e = p * warp_size + lane(); e < width) at[p] += f * row(e);
    }
  }
  // x(r, first + e) = become(x, first + e, value of column e) for all columns e of the head.
  template <class Become>
  GYR_DEVICE void store(const Global<A>& x, Index r, Index first, Index width, const Become& become) const {
    for (int p = 0; p < P; ++p)
      if (const Index e = p * warp_size + lane(); e < width) x.store(r, first + e, become(x, first + e, at[p]));
  }
};

GYR_DEVICE int least(Index a, int b) { return a < b ? int(a) : b; }

// Position of a warp's query and its visible key range [hidden, seen).
template <class T>
struct Query {
  Index row, head, kv_head, sequence, number, first_key_row, hidden, seen;

  GYR_DEVICE Query(const Heads& s, Index task) {
    row = task / s.num_heads, head = task % s.num_heads, kv_head = head / s.group();
    number = row % s.queries, sequence = row / s.queries;
    first_key_row = sequence * s.keys;
    hidden = s.hidden(sequence, number), seen = s.seen(sequence, number);
  }
  GYR_DEVICE HeadRow<T> of(const Global<const T>& x, Index width) const { return {x, row, head * width, width}; }
  // Dropout factor of the attention weight of key j.
  GYR_DEVICE Acc<T> kept(const Heads& s, const Dropout& dropout, const Draws& draws, Index j) const {
    return s.kept<Acc<T>>(dropout, s.draws_of(dropout, draws, sequence), head, number, j);
  }
  GYR_DEVICE HeadRow<T> key(const Global<const T>& x, Index j, Index width) const { return {x, first_key_row + j, kv_head * width, width}; }
};

template <class T, int P>
GYR_KERNEL forward_kernel(Heads s, ScoreOf<Acc<T>> score_of, Distances<const Acc<T>> bias, bool fresh, Global<const T> q, Global<const T> k,
                          Global<const T> v, Global<Acc<T>> o, Global<Acc<T>> m, Global<Acc<T>> l) {
  using A = Acc<T>;
  const Draws draws = score_of.dropout.draws();
  each_row(s.batch * s.queries * s.num_heads, [&](Index task) {
    const Query<T> at(s, task);
    const auto query = at.of(q, s.head_dim);
    A top = fresh ? -std::numeric_limits<A>::infinity() : m.load(at.row, at.head), sum = fresh ? A(0) : l.load(at.row, at.head), kept = 1;
    Columns<A, P> out;
    for (Index j = at.hidden; j < at.seen; j += warp_size) {
      const int count = least(at.seen - j, warp_size);
      const Index mine = j + lane();
      const A score =
          lane() < count ? score_of(query.dot(at.key(k, mine, s.head_dim))) + bias.of(at.head, at.number, mine) : -std::numeric_limits<A>::infinity();
      const A largest = warp_largest(score > top ? score : top), shrink = fast_exp(top - largest);
      const A p = lane() < count ? fast_exp(score - largest) : A(0);
      top = largest, sum = sum * shrink + warp_sum(p), kept *= shrink;
      for (A& x : out.at) x *= shrink;
      out.add(
          lane() < count ? p * at.kept(s, score_of.dropout, draws, j + lane()) : A(0), count, [&](int l) { return at.key(v, j + l, s.v_head_dim); },
          s.v_head_dim);
    }
    out.store(o, at.row, at.head * s.v_head_dim, s.v_head_dim,
              [&](const auto& x, Index c, A more) { return fresh ? more : kept * x.load(at.row, c) + more; });
    sync_warp();  // all lanes have read m and l before lane 0 overwrites them
    if (lane() == 0) m.store(at.row, at.head, top), l.store(at.row, at.head, sum);
  });
}

// p: attention weight after dropout, which multiplies dO in dV. of_score: gradient of the capped score plus bias. d:
// gradient of the dot product of query and key.
template <class A>
struct ScoreGradient {
  A p, of_score, d;
  GYR_DEVICE ScoreGradient(const ScoreOf<A>& score_of, A bias, A product, A dp, A lse, A delta, A kept) {
    const A score = score_of(product);
    p = fast_exp(score + bias - lse), of_score = p * (kept * dp - delta), d = of_score * score_of.scale * score_of.cap.slope(score);
    p *= kept;
  }
};

template <class T>
GYR_KERNEL backward_queries_kernel(Heads s, ScoreOf<Acc<T>> score_of, Distances<const Acc<T>> bias, Global<const T> q, Global<const T> k,
                                   Global<const T> v, Global<const T> dout, Global<const Acc<T>> lse, Global<const Acc<T>> delta, Global<Acc<T>> dq) {
  using A = Acc<T>;
  const Draws draws = score_of.dropout.draws();
  each_row(s.batch * s.queries * s.num_heads, [&](Index task) {
    const Query<T> at(s, task);
    const auto query = at.of(q, s.head_dim), slope = at.of(dout, s.v_head_dim);
    const A top = lse.load(at.row, at.head), mean = delta.load(at.row, at.head);
    Columns<A> sum;
    for (Index j = at.hidden; j < at.seen; j += warp_size) {
      const int count = least(at.seen - j, warp_size);
      A d = 0;
      if (const Index mine = j + lane(); lane() < count)
        d = ScoreGradient<A>(score_of, bias.of(at.head, at.number, mine), query.dot(at.key(k, mine, s.head_dim)),
                             slope.dot(at.key(v, mine, s.v_head_dim)), top, mean, at.kept(s, score_of.dropout, draws, mine))
                .d;
      sum.add(
          d, count, [&](int l) { return at.key(k, j + l, s.head_dim); }, s.head_dim);
    }
    sum.store(dq, at.row, at.head * s.head_dim, s.head_dim, [&](const auto& x, Index c, A more) { return x.load(at.row, c) + more; });
  });
}

// One warp per key and key head. It loops over all query heads of the group in order, and over the queries that see the
// key.
template <class T>
GYR_KERNEL backward_keys_kernel(Heads s, ScoreOf<Acc<T>> score_of, Distances<const Acc<T>> bias, Global<const T> q, Global<const T> k,
                                Global<const T> v, Global<const T> dout, Global<const Acc<T>> lse, Global<const Acc<T>> delta, Global<Acc<T>> dk,
                                Global<Acc<T>> dv) {
  using A = Acc<T>;
  const Draws draws = score_of.dropout.draws();
  each_row(s.batch * s.keys * s.num_kv_heads, [&](Index task) {
    const Index row = task / s.num_kv_heads, kv_head = task % s.num_kv_heads, j = row % s.keys, first_row = row / s.keys * s.queries;
    const HeadRow<T> key{k, row, kv_head * s.head_dim, s.head_dim}, value{v, row, kv_head * s.v_head_dim, s.v_head_dim};
    Columns<A> key_sum, value_sum;
    for (Index head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head)
      for (Index i = 0; i < s.queries; i += warp_size) {
        const int count = least(s.queries - i, warp_size);
        if (s.seen(row / s.keys, i + count - 1) <= j) continue;
        if (s.visible.first_query_past_window(j, s.queries) <= i) break;
        A p = 0, d = 0;
        if (lane() < count) {
          const Query<T> at(s, (first_row + i + lane()) * s.num_heads + head);
          if (at.hidden <= j && j < at.seen) {
            const ScoreGradient<A> g(score_of, bias.of(head, at.number, j), at.of(q, s.head_dim).dot(key), at.of(dout, s.v_head_dim).dot(value),
                                     lse.load(at.row, head), delta.load(at.row, head), at.kept(s, score_of.dropout, draws, j));
            p = g.p, d = g.d;
          }
        }
        value_sum.add(
            p, count,
            [&](int l) {
              return HeadRow<T>{dout, first_row + i + l, head * s.v_head_dim, s.v_head_dim};
            },
            s.v_head_dim);
        key_sum.add(
            d, count,
            [&](int l) {
              return HeadRow<T>{q, first_row + i + l, head * s.head_dim, s.head_dim};
            },
            s.head_dim);
      }
    const auto add = [&](const auto& x, Index c, A more) { return x.load(row, c) + more; };
    value_sum.store(dv, row, kv_head * s.v_head_dim, s.v_head_dim, add);
    key_sum.store(dk, row, kv_head * s.head_dim, s.head_dim, add);
  });
}

// Gradient of the distance bias: one warp per head and distance. Its lanes stride over the queries of all sequences.
template <class T>
GYR_KERNEL backward_bias_kernel(Heads s, ScoreOf<Acc<T>> score_of, Distances<const Acc<T>> bias, Distances<Acc<T>> gradient, Global<const T> q,
                                Global<const T> k, Global<const T> v, Global<const T> dout, Global<const Acc<T>> lse, Global<const Acc<T>> delta) {
  using A = Acc<T>;
  const Draws draws = score_of.dropout.draws();
  each_row(s.num_heads * gradient.at.columns(), [&](Index task) {
    const Index head = task / gradient.at.columns(), column = task % gradient.at.columns(), distance = column - gradient.first;
    A sum = 0;
    for (Index row = lane(); row < s.batch * s.queries; row += warp_size) {
      const Query<T> at(s, row * s.num_heads + head);
      const Index j = at.number + distance;
      if (j < at.hidden || j >= at.seen) continue;
      sum += ScoreGradient<A>(score_of, bias.of(head, at.number, j), at.of(q, s.head_dim).dot(at.key(k, j, s.head_dim)),
                              at.of(dout, s.v_head_dim).dot(at.key(v, j, s.v_head_dim)), lse.load(at.row, head), delta.load(at.row, head),
                              at.kept(s, score_of.dropout, draws, j))
                 .of_score;
    }
    sum = warp_sum(sum);
    if (lane() == 0) gradient.at.store(head, column, gradient.at.load(head, column) + sum);
  });
}

// Merges two states of the same queries over different keys. A row with l2 = 0 has seen no key in the second state and
// stays unchanged. This also covers rows in which both m are -infinity.
template <class A>
GYR_KERNEL merge_kernel(Index num_heads, Index width, Global<const A> o2, Global<const A> m2, Global<const A> l2, Global<A> o, Global<A> m,
                        Global<A> l) {
  each_row(o.rows() * num_heads, [&](Index task) {
    const Index r = task / num_heads, h = task % num_heads;
    const A more = l2.load(r, h), here = m.load(r, h), there = m2.load(r, h), length = l.load(r, h);
    if (more == 0) return;
    const A top = here > there ? here : there, keep = fast_exp(here - top), join = fast_exp(there - top);
    for (Index c = h * width + lane(); c < (h + 1) * width; c += warp_size) o.store(r, c, keep * o.load(r, c) + join * o2.load(r, c));
    sync_warp();
    if (lane() == 0) m.store(r, h, top), l.store(r, h, keep * length + join * more);
  });
}

// out = o / l and lse = m + log l. out may alias o. N: elements per load and store.
template <class T, int N>
GYR_KERNEL finish_kernel(int heads, Index width, Global<const Acc<T>> o, Global<const Acc<T>> m, Global<const Acc<T>> l, Global<const Acc<T>> sinks,
                         Global<T> out, Global<Acc<T>> lse) {
  using A = Acc<T>;
  each_row(out.rows() * heads, [&](Index task) {
    const int r = int(task) / heads, h = int(task) - r * heads;  // a 64-bit division would take longer than the rest of the kernel
    const auto [top, sum, shrink] = with_sink(sinks.columns() > 0 ? sinks.load(h) : -std::numeric_limits<A>::infinity(), m.load(r, h), l.load(r, h));
    const A inverse = sum > 0 ? shrink / sum : A(0);
    each_column<N>(width, [&](Index c) {
      const auto sums = o.template load_pack<N>(r, h * width + c);
      Pack<T, N> v;
      for (int i = 0; i < N; ++i) v.at[i] = T(sums.at[i] * inverse);
      out.template store_pack<N>(r, h * width + c, v);
    });
    sync_warp();  // lse may alias m: all lanes have read m before lane 0 overwrites it
    if (lane() == 0) lse.store(r, h, sum > 0 ? top + std::log(sum) : -std::numeric_limits<A>::infinity());
  });
}

template <class A>
GYR_KERNEL sink_terms_kernel(Global<const A> sinks, Global<const A> lse, Global<const A> delta, Global<A> terms) {
  each_row(terms.rows(), [&](Index r) {
    each_column<1>(terms.columns(), [&](Index h) { terms.store(r, h, -fast_exp(sinks.load(h) - lse.load(r, h)) * delta.load(r, h)); });
  });
}

template <class T, int N>
GYR_KERNEL delta_kernel(int heads, Index width, Global<const T> dout, Global<const T> out, Global<Acc<T>> delta) {
  using A = Acc<T>;
  each_row(out.rows() * heads, [&](Index task) {
    const int r = int(task) / heads, h = int(task) - r * heads;
    A sum = 0;
    each_column<N>(width, [&](Index c) {
      const auto d = dout.template load_values<N>(r, h * width + c), v = out.template load_values<N>(r, h * width + c);
      for (int i = 0; i < N; ++i) sum += d.at[i] * v.at[i];
    });
    sum = warp_sum(sum);
    if (lane() == 0) delta.store(r, h, sum);
  });
}

constexpr int lane_pack = 4;  // elements per lane of a head with 128 columns (128 / 32)
// Placeholder matrix with the width of one head. with_packs_of checks it, because a pack must not cross the end of a
// head.
template <class T>
Global<const T> head_of(Index width) {
  return Matrix<const T>(nullptr, 1, width, width);
}

// Number of visible (query, key) pairs over all heads.
double pairs(const AttentionShape& s, const Mask& mask) {
  const VisibleKeys visible(s, mask);
  double n = 0;
  for (Index r = 0; r < s.batch * s.queries; ++r) {
    const Index i = r % s.queries;
    n += double(std::max<Index>(0, visible.seen(i, mask.documents.planned_reach_ahead(r)) - visible.hidden(i, mask.documents.planned_reach(r))));
  }
  return n * double(s.num_heads);
}

// Bytes of q, k and v, plus `states` values of type Acc<T> per query and value channel.
template <class T>
double bytes(const AttentionShape& s, double states) {
  const double queries = double(s.batch * s.queries * s.num_heads), keys = double(s.batch * s.keys * s.num_kv_heads);
  return sizeof(T) * (queries * double(s.head_dim) + keys * double(s.head_dim + s.v_head_dim)) +
         states * sizeof(Acc<T>) * queries * double(s.v_head_dim);
}

}  // namespace

template <class T>
void attend(Device& dev, const Heads& s, const ScoreRule& scores, const Distances<const Acc<T>>& bias, Matrix<const T> q, Matrix<const T> k,
            Matrix<const T> v, bool fresh, AttentionState<Acc<T>> state) {
  if constexpr (std::is_same_v<T, bf16>)
    if (!scores.bias && attention_by_tensor_cores(dev, s, scores, q, k, v, fresh, state)) return;
  launch(dev, "attention", grid_of_warps(s.batch * s.queries * s.num_heads),
         s.v_head_dim <= parts * warp_size ? forward_kernel<T, parts> : forward_kernel<T, wide_parts>, s, ScoreOf<Acc<T>>(scores), bias, fresh, q, k, v,
         state.o, state.m, state.l);
}

template <class T>
void attention(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
               Matrix<const T> v, Carry carry, AttentionState<Acc<T>> state) {
  const bool fresh = carry == Carry::fresh;
  const double each = 2.0 * double(shape.head_dim + shape.v_head_dim) + (scores.cap > 0 ? 7 : 4) + (scores.bias ? 1 : 0);
  const Heads heads(shape, mask);
  const auto attend_without_cudnn = [&] { attend<T>(dev, heads, scores, {scores.bias.values, scores.bias, mask}, q, k, v, fresh, state); };
  const auto announced = [&] { return dev.launch("attention", each * pairs(shape, mask), bytes<T>(shape, fresh ? 1 : 2)); };
  if constexpr (std::is_same_v<T, bf16>)
    if (const auto described = fresh ? fused_attention(shape, mask, scores, q, k, v) : std::nullopt) {
      const FusedForwardCall by_cudnn(dev.scratch, *described);
      if (const auto run = announced())
        if (!by_cudnn.run(dev, q, k, v, state)) attend_without_cudnn();
      return;
    }
  if (const auto run = announced()) attend_without_cudnn();
}

template <class A>
void attention_merge(Device& dev, const AttentionShape& shape, AttentionState<A> other, AttentionState<A> state) {
  launch(dev, "attention_merge", grid_of_warps(Index(state.o.extent(0)) * shape.num_heads), merge_kernel<A>, shape.num_heads, shape.v_head_dim,
         other.o, other.m, other.l, state.o, state.m, state.l);
}

template <class T>
void attention_finish(Device& dev, const AttentionShape& shape, AttentionState<Acc<T>> state, Tensor2<T> out, Tensor2<Acc<T>> lse,
                      Tensor1<const Acc<T>> sinks) {
  const Global<const Acc<T>> sums(Tensor2<const Acc<T>>(state.o));
  const Global<T> to(out);
  with_packs_of<lane_pack>(
      [&](auto n) {
        launch(dev, "attention_finish", grid_of_warps(to.rows() * shape.num_heads), finish_kernel<T, n>, int(shape.num_heads), shape.v_head_dim, sums,
               state.m, state.l, sinks, to, lse);
      },
      head_of<T>(shape.v_head_dim), sums, to);
}

template <class A>
void attention_sink_terms(Device& dev, Tensor1<const A> sinks, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms) {
  const Global<A> to(terms);
  launch(dev, "attention_sinks", grid_of_rows(to), sink_terms_kernel<A>, Global<const A>(sinks), Global<const A>(lse), Global<const A>(delta), to);
}

template <class T>
void attention_delta(Device& dev, const AttentionShape& shape, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta) {
  const Global<const T> from(out), d(dout);
  with_packs_of<lane_pack>(
      [&](auto n) {
        launch(dev, "attention_delta", grid_of_warps(from.rows() * shape.num_heads), delta_kernel<T, n>, int(shape.num_heads), shape.v_head_dim, d,
               from, delta);
      },
      head_of<T>(shape.v_head_dim), d, from);
}

template <class T>
void attention_backward(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
                        Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq,
                        Matrix<Acc<T>> dk, Matrix<Acc<T>> dv) {
  ensure_widths(shape.head_dim, shape.v_head_dim, parts);
  const Heads heads(shape, mask);
  const double each = 6.0 * double(shape.head_dim) + 4.0 * double(shape.v_head_dim) + (scores.cap > 0 ? 12 : 5) + (scores.bias ? 3 : 0);
  const auto run = dev.launch("attention_backward", each * pairs(shape, mask), bytes<T>(shape, 4));
  bool done = !run;
  if constexpr (std::is_same_v<T, bf16>) {
    const Scope scope(dev.scratch);
    const auto described = fused_attention(shape, mask, scores, q, k, v);
    const auto by_cudnn = described ? FusedBackwardCall::made(dev.scratch, *described) : std::nullopt;
    if (run && by_cudnn) done = by_cudnn->run(dev, q, k, v, dout, lse, delta, dq, dk, dv);
  }
  const KeyGradientParts parts(dev.scratch, heads, std::is_same_v<T, bf16> ? KeyGradientParts::enough(heads) : 1);
  if (done) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (!scores.bias && attention_gradients_by_tensor_cores(dev, heads, scores, q, k, v, dout, lse, delta, parts, dq, dk, dv)) return;
  const ScoreOf<Acc<T>> score_of(scores);
  const Distances<const Acc<T>> bias(scores.bias.values, scores.bias, mask);
  launch(dev, "attention_backward", grid_of_warps(shape.batch * shape.queries * shape.num_heads), backward_queries_kernel<T>, heads, score_of, bias,
         q, k, v, dout, lse, delta, dq);
  launch(dev, "attention_backward", grid_of_warps(shape.batch * shape.keys * shape.num_kv_heads), backward_keys_kernel<T>, heads, score_of, bias, q,
         k, v, dout, lse, delta, dk, dv);
  if (scores.bias)
    launch(dev, "attention_backward", grid_of_warps(shape.num_heads * scores.bias.gradient.columns), backward_bias_kernel<T>, heads, score_of, bias,
           Distances<Acc<T>>(scores.bias.gradient, scores.bias, mask), q, k, v, dout, lse, delta);
}

#define GYR_ATTEND(T)                                                                                                                \
  template void attend<T>(Device&, const Heads&, const ScoreRule&, const Distances<const Acc<T>>&, Matrix<const T>, Matrix<const T>, \
                          Matrix<const T>, bool, AttentionState<Acc<T>>);
GYR_SCALARS(GYR_ATTEND)
#undef GYR_ATTEND
GYR_ALL_ATTENTION

}  // namespace gyr::backend
