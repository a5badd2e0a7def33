// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/attention.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/gpu_plan.hpp"

namespace gyr {

VisibleKeys::VisibleKeys(const AttentionShape& s, const Mask& m)
    : first_seen(m.first_query - m.first_key + 1), keys(s.keys), back(m.window > 0 ? m.window - 1 : Documents::unlimited),
      front(m.causal ? 0 : back) {}

bool any_visible(const AttentionShape& s, const Mask& m) {
  const VisibleKeys visible(s, m);
  return visible.hidden(0, Documents::unlimited) < visible.seen(s.queries - 1, Documents::unlimited);
}

DistanceBias DistanceBias::of_heads(Index first, Index count) const {
  DistanceBias part = *this;
  if (*this) part.values = rows(values, first, count);
  if (gradient.columns > 0) part.gradient = rows(gradient, first, count);
  return part;
}

namespace {

// A bias must cover all distances that occur, and is not supported together with a soft cap.
void check(const AttentionShape& s, const Mask& m, const ScoreRule& scores) {
  const DistanceBias& b = scores.bias;
  if (!b) return;
  const Index first = b.first_column(m);
  ensure(scores.cap == 0 && b.values.rows == s.num_heads && first - (s.queries - 1) >= 0 && first + s.keys <= b.values.columns,
         "attention: a bias of {} heads and {} distances, 0 in column {}, does not fit {} heads, {} queries from {} and {} keys from {}{}",
         b.values.rows, b.values.columns, b.zero, s.num_heads, s.queries, m.first_query, s.keys, m.first_key,
         scores.cap == 0 ? "" : ", or is combined with a soft cap");
}

template <class T>
void check(const AttentionShape& s, const Mask& m, const Matrix<const T>& q, const Matrix<const T>& k, const Matrix<const T>& v) {
  ensure(q.rows == s.batch * s.queries && q.columns == s.num_heads * s.head_dim && k.rows == s.batch * s.keys && v.rows == k.rows &&
             k.columns == s.num_kv_heads * s.head_dim && v.columns == s.num_kv_heads * s.v_head_dim,
         "attention: q ({},{}), k ({},{}), v ({},{}) do not fit {} sequences of {} queries and {} keys, {} heads, {} key/value heads, "
         "head_dim {}, v_head_dim {}",
         q.rows, q.columns, k.rows, k.columns, v.rows, v.columns, s.batch, s.queries, s.keys, s.num_heads, s.num_kv_heads, s.head_dim, s.v_head_dim);
  ensure(s.num_kv_heads > 0 && s.num_heads % s.num_kv_heads == 0, "attention: {} query heads are not a multiple of {} key/value heads", s.num_heads,
         s.num_kv_heads);
  m.documents.check(s.batch * s.queries);
  ensure(m.causal || m.documents.packed() == m.documents.both_ways(),
         "attention: a bidirectional mask over packed documents needs the tokens ahead in each document");
}

}  // namespace

template <class T>
void attention(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
               Matrix<const T> v, Carry carry, AttentionState<Acc<T>> state) {
  check(shape, mask, q, k, v);
  check(shape, mask, scores);
  const Workspace workspace(dev.scratch, "attention");
  planned_for_gpu(
      dev, [](Arena&) {}, [&](Device& device) { backend::attention<T>(device, shape, mask, scores, q, k, v, carry, state); });
}

template <class A>
void attention_merge(Device& dev, const AttentionShape& shape, AttentionState<A> other, AttentionState<A> state) {
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  if (const auto run = dev.launch("attention_merge", 3.0 * R * shape.num_heads * V, 3.0 * R * shape.num_heads * V * sizeof(A)))
    backend::attention_merge<A>(dev, shape, other, state);
}

template <class T>
void attention_finish(Device& dev, const AttentionShape& shape, AttentionState<Acc<T>> state, Tensor2<T> out, Tensor2<Acc<T>> lse,
                      Tensor1<const Acc<T>> sinks) {
  using A = Acc<T>;
  ensure(sinks.span() == 0 || Index(sinks.span()) == shape.num_heads, "attention: {} sinks for {} heads", sinks.span(), shape.num_heads);
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  if (const auto run = dev.launch("attention_finish", double(R) * shape.num_heads * V, double(R) * shape.num_heads * V * (sizeof(A) + sizeof(T))))
    backend::attention_finish<T>(dev, shape, state, out, lse, sinks);
}

template <class T>
void attention_delta(Device& dev, const AttentionShape& shape, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta) {
  const Index R = shape.batch * shape.queries, V = shape.v_head_dim;
  if (const auto run = dev.launch("attention_delta", 2.0 * R * shape.num_heads * V, 2.0 * R * shape.num_heads * V * sizeof(T)))
    backend::attention_delta<T>(dev, shape, dout, out, delta);
}

template <class A>
void attention_sink_terms(Device& dev, Tensor1<const A> sinks, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms) {
  const double n = double(terms.extent(0)) * double(terms.extent(1));
  ensure(sinks.extent(0) == terms.extent(1) && lse.span() == terms.span() && delta.span() == terms.span(),
         "attention sinks: terms ({},{}) do not fit {} sinks, lse and delta", terms.extent(0), terms.extent(1), sinks.extent(0));
  if (const auto run = dev.launch("attention_sinks", 3 * n, 3.0 * sizeof(A) * n)) backend::attention_sink_terms<A>(dev, sinks, lse, delta, terms);
}

template <class T>
void attention_backward(Device& dev, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
                        Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq,
                        Matrix<Acc<T>> dk, Matrix<Acc<T>> dv) {
  check(shape, mask, q, k, v);
  check(shape, mask, scores);
  ensure(scores.bias.gradient.columns == scores.bias.values.columns, "attention_backward: the gradient of the score bias has the wrong width");
  const Workspace workspace(dev.scratch, "attention_backward");
  planned_for_gpu(
      dev, [&](Arena& scratch) { allocate_gpu_attention_backward(scratch, shape, dtype_of<T>()); },
      [&](Device& device) { backend::attention_backward<T>(device, shape, mask, scores, q, k, v, dout, lse, delta, dq, dk, dv); });
}

GYR_ALL_ATTENTION

}  // namespace gyr
