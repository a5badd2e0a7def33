// SPDX-License-Identifier: BSD-3-Clause
// Grouped-query attention over blocks of keys with carried state (o, m, l): online softmax, so that blocks may come from anywhere.
//   B sequences, Tq queries and Tk keys of each, H query heads, K key heads (H % K == 0), E head_dim of queries and keys, V of values
//   For a block of keys:  S = scale q k' or what a cap leaves of it,  m' = max(m, rowmax S),  p = exp(S - m'),
//                         l = e^(m-m') l + rowsum p,  o = e^(m-m') o + p v
//   A bias b(head, distance from query to key), where there is one, is added to S behind the cap.
//   At the end:  out = o / l,  lse = m + log l.   Rows that may see no key keep m = -infinity, l = 0 and give out = 0, lse = -infinity
//   With dropout o has D p in place of p, D as dropout.hpp has it for the token, its head and the token of the key; m and l stay what they are.
//   A sink s of each head (gpt-oss) is a key without a value that every query sees: it joins m and l at the end.
#pragma once

#include "kernels/device/documents.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/soft_cap.hpp"

namespace gyr {

struct AttentionShape {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
};

// Which keys a query may see: key j of the block stands at position first_key + j, query i at first_query + i (the same in every sequence).
// causal: position of key <= position of query. With packed documents (rows b Tq + i) also no further back than the query's document began and,
// where the mask is not causal, no further ahead than it ends. With a window none but the last so many, the query's own among them, and where the
// mask is not causal as many ahead. Keys that no query of a tile may see cost nothing.
struct Mask {
  bool causal = true;
  Index first_query = 0, first_key = 0;
  Documents documents = {};
  Index window = 0;          // 0: unlimited
  Index first_sequence = 0;  // number of the shape's first one in the micro-batch
};

// The same as bounds: query i of a sequence sees the keys [hidden, seen) of the block. Neither falls from query to query of a document.
struct VisibleKeys {
  Index first_seen, keys;  // first_seen: keys up to the first query's own
  Index back, front;       // tokens before and behind a query that its window shows

  VisibleKeys(const AttentionShape&, const Mask&);
  // ahead: tokens of the query's document behind it
  GYR_FUNCTION Index seen(Index i, Index ahead) const { return within(first_seen + i + (ahead < front ? ahead : front), keys); }
  // reach: tokens back to where the query's document began
  GYR_FUNCTION Index hidden(Index i, Index reach) const { return within(first_seen + i - 1 - (reach < back ? reach : back), keys); }
  // The first of so many queries whose window shows key j, and the first behind it whose window hides the key again.
  GYR_FUNCTION Index first_query_in_window(Index j, Index queries) const { return within(j + 1 - first_seen - front, queries); }
  GYR_FUNCTION Index first_query_past_window(Index j, Index queries) const { return within(j + back + 2 - first_seen, queries); }
  GYR_FUNCTION static Index within(Index n, Index limit) { return n < 0 ? 0 : (n < limit ? n : limit); }
};

// Whether some query may see some key of the block; of documents nothing is known here.
bool any_visible(const AttentionShape&, const Mask&);

// A number for each head and each distance from a query's position to a key's: column zero + distance.
struct DistanceBias {
  AnyTensor2 values = {}, gradient = {};  // (H, distances) of Acc<T>; attention_backward adds to the second
  Index zero = 0;

  explicit operator bool() const { return values.columns > 0; }
  // Column of query i and key j = 0 of a block.
  Index first_column(const Mask& mask) const { return zero + mask.first_key - mask.first_query; }
  DistanceBias of_heads(Index first, Index count) const;
};

// What a product of a query and a key becomes: scale q k', or cap tanh(scale q k' / cap), and a bias besides; and what of its power of e meets no
// value.
struct ScoreRule {
  double scale, cap;  // cap 0: none
  DistanceBias bias = {};
  Dropout dropout = {};

  ScoreRule(double scale, double cap = 0) : scale(scale), cap(cap) {}
};

// State of each query and head between blocks of keys.
template <class A>
struct AttentionState {
  Tensor2<A> o;     // (B Tq, H V)
  Tensor2<A> m, l;  // (B Tq, H)
};

// Largest score and sum of a row once a sink has joined them, and what o shrinks by; -infinity: there is no sink.
template <class A>
struct WithSink {
  A m, l, shrink;
};
template <class A>
GYR_FUNCTION WithSink<A> with_sink(A sink, A m, A l) {
  if (sink == -std::numeric_limits<A>::infinity()) return {m, l, A(1)};
  const A top = m > sink ? m : sink, shrink = fast_exp(m - top);  // 0 for a row that has met no key
  return {top, l * shrink + fast_exp(sink - top), shrink};
}

enum class Carry { fresh, continued };  // fresh: the state is written without being read

template <class T>
void attention(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T> q /*(B Tq, H E)*/, Matrix<const T> k /*(B Tk, K E)*/,
               Matrix<const T> v /*(B Tk, K V)*/, Carry, AttentionState<Acc<T>> state);

// Of states of the same queries that have met different keys, that of all of them: m' = max(m, m_2), l = e^(m-m') l + e^(m_2-m') l_2, o likewise.
template <class A>
void attention_merge(Device&, const AttentionShape&, AttentionState<A> other, AttentionState<A> state);

// out = o / l, lse = m + log l; lse may be state.m, and out may be state.o's memory where T is Acc<T>. With sinks m and l are first those of the keys
// and a sink.
template <class T>
void attention_finish(Device&, const AttentionShape&, AttentionState<Acc<T>> state, Tensor2<T> out /*(B Tq, H V)*/, Tensor2<Acc<T>> lse /*(B Tq, H)*/,
                      Tensor1<const Acc<T>> sinks /*(H)*/ = {});

// delta(r, h) = sum over the head's channels of do * out
template <class T>
void attention_delta(Device&, const AttentionShape&, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta /*(B Tq, H)*/);

// The terms of a sink's gradient, whose sum over rows it is:  -exp(sink(h) - lse(r, h)) delta(r, h)
template <class A>
void attention_sink_terms(Device&, Tensor1<const A> sinks /*(H)*/, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms /*(B Tq, H)*/);

// p = exp(S - lse),  dv += p' do,  dp = do v',  db(distance) += p (dp - delta),  ds = p (dp - delta) (1 - (S / cap)^2) scale,  dq += ds k,
// dk += ds' q  (dk, dv summed over the group's heads; db over all pairs at that distance); with dropout D p in place of p in dv, and D dp in place
// of dp
template <class T>
void attention_backward(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                        Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq /*+=*/,
                        Matrix<Acc<T>> dk /*+=*/, Matrix<Acc<T>> dv /*+=*/);

}  // namespace gyr
