// SPDX-License-Identifier: BSD-3-Clause
// Grouped-query attention over blocks of keys with carried state (o, m, l): online softmax, so that blocks may arrive from other ranks in any order.
//   B sequences, Tq queries and Tk keys per sequence, H query heads, K key/value heads (H % K == 0), E head_dim of q and k, V head_dim of v
//   For a block of keys:  S = scale q k', soft-capped if there is a cap,  m' = max(m, rowmax S),  p = exp(S - m'),
//                         l = e^(m-m') l + rowsum p,  o = e^(m-m') o + p v
//   A bias b(head, distance from query to key), if there is one, is added to S.
//   At the end:  out = o / l,  lse = m + log l.   Rows without a visible key keep m = -infinity, l = 0 and give out = 0, lse = -infinity.
//   With dropout, o uses D p instead of p. D is the factor of dropout.hpp for the query token, its head and the key token; m and l are unchanged.
//   An attention sink s per head (gpt-oss) is a key without a value that is visible to every query: it is added to m and l at the end.
#pragma once

#include "kernels/device/documents.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/soft_cap.hpp"

namespace gyr {

struct AttentionShape {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
};

// Keys that a query may see. Key j of the block has position first_key + j, query i has position first_query + i (the same in every sequence).
//   causal             key position <= query position
//   packed documents   (rows b Tq + i) only keys of the query's own document; if not causal, this needs Documents::ahead
//   window             only the last `window` keys including the query's own; if not causal, also the next window - 1 keys
// Tiles of keys that are masked for all queries of a tile are skipped.
struct Mask {
  bool causal = true;
  Index first_query = 0, first_key = 0;
  Documents documents = {};
  Index window = 0;          // size of the sliding window in tokens; 0: unlimited
  Index first_sequence = 0;  // index, in the micro-batch, of the first sequence of this call
};

// The mask as key ranges: query i of a sequence sees the keys [hidden, seen) of the block. Within a document, neither
// bound decreases from query to query.
struct VisibleKeys {
  Index first_seen, keys;  // first_seen: keys of the block up to the first query's position, unclamped (may be negative); keys: keys in the block
  Index back, front;       // tokens before and after a query that its window includes

  VisibleKeys(const AttentionShape&, const Mask&);
  // ahead: number of tokens after the query in its document
  GYR_FUNCTION Index seen(Index i, Index ahead) const { return within(first_seen + i + (ahead < front ? ahead : front), keys); }
  // reach: number of tokens before the query in its document
  GYR_FUNCTION Index hidden(Index i, Index reach) const { return within(first_seen + i - 1 - (reach < back ? reach : back), keys); }
  // First of `queries` queries whose window includes key j, and the first query after it whose window no longer
  // includes key j.
  GYR_FUNCTION Index first_query_in_window(Index j, Index queries) const { return within(j + 1 - first_seen - front, queries); }
  GYR_FUNCTION Index first_query_past_window(Index j, Index queries) const { return within(j + back + 2 - first_seen, queries); }
  GYR_FUNCTION static Index within(Index n, Index limit) { return n < 0 ? 0 : (n < limit ? n : limit); }
};

// True if some query may see some key of the block; packed documents are not considered.
bool any_visible(const AttentionShape&, const Mask&);

// Score bias: one value for each head and each distance (key position minus query position), in column zero + distance.
struct DistanceBias {
  AnyTensor2 values = {}, gradient = {};  // bias values and their gradient, (H, distances) of Acc<T>; attention_backward adds to the gradient
  Index zero = 0;

  explicit operator bool() const { return values.columns > 0; }
  // Column of query 0 and key 0 of a block; query i and key j use column first_column + j - i.
  Index first_column(const Mask& mask) const { return zero + mask.first_key - mask.first_query; }
  DistanceBias of_heads(Index first, Index count) const;
};

// Score of a query and a key: scale q k', or cap tanh(scale q k' / cap), plus a bias if there is one. dropout applies
// to the softmax probabilities.
struct ScoreRule {
  double scale, cap;  // cap 0: no soft cap
  DistanceBias bias = {};
  Dropout dropout = {};

  ScoreRule(double scale, double cap = 0) : scale(scale), cap(cap) {}
};

// Online-softmax state of each query and head, carried from one block of keys to the next.
template <class A>
struct AttentionState {
  Tensor2<A> o;     // weighted sum of the values, not yet divided by l: (B Tq, H V)
  Tensor2<A> m, l;  // row maximum and row sum: (B Tq, H)
};

// Row maximum and row sum after a sink has been added, and the factor by which o shrinks. A sink of -infinity means
// that there is none.
template <class A>
struct WithSink {
  A m, l, shrink;
};
template <class A>
GYR_FUNCTION WithSink<A> with_sink(A sink, A m, A l) {
  if (sink == -std::numeric_limits<A>::infinity()) return {m, l, A(1)};
  const A top = m > sink ? m : sink, shrink = fast_exp(m - top);  // the factor is 0 for a row without a visible key
  return {top, l * shrink + fast_exp(sink - top), shrink};
}

enum class Carry { fresh, continued };  // Carry::fresh: the attention state is written without being read

template <class T>
void attention(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T> q /*(B Tq, H E)*/, Matrix<const T> k /*(B Tk, K E)*/,
               Matrix<const T> v /*(B Tk, K V)*/, Carry, AttentionState<Acc<T>> state);

// Merges the states of the same queries over two sets of keys: m' = max(m, m_2), l = e^(m-m') l + e^(m_2-m') l_2, and o
// likewise.
template <class A>
void attention_merge(Device&, const AttentionShape&, AttentionState<A> other, AttentionState<A> state);

// out = o / l, lse = m + log l. lse may be state.m, and out may be the memory of state.o if T is Acc<T>. Sinks, if any,
// are first added to m and l.
template <class T>
void attention_finish(Device&, const AttentionShape&, AttentionState<Acc<T>> state, Tensor2<T> out /*(B Tq, H V)*/, Tensor2<Acc<T>> lse /*(B Tq, H)*/,
                      Tensor1<const Acc<T>> sinks /*(H)*/ = {});

// delta(r, h) = sum over the channels of head h of dout * out
template <class T>
void attention_delta(Device&, const AttentionShape&, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta /*(B Tq, H)*/);

// Terms of the gradient of a sink, which is their sum over rows:  -exp(sink(h) - lse(r, h)) delta(r, h)
template <class A>
void attention_sink_terms(Device&, Tensor1<const A> sinks /*(H)*/, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms /*(B Tq, H)*/);

// p = exp(S - lse),  dv += p' dout,  dp = dout v',  db(distance) += p (dp - delta),  ds = p (dp - delta) (1 - (S / cap)^2) scale,  dq += ds k,
// dk += ds' q.   dk and dv are summed over the query heads of a group, db over all pairs at that distance.
// With dropout, D p replaces p in dv, and D dp replaces dp.
template <class T>
void attention_backward(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                        Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq /*+=*/,
                        Matrix<Acc<T>> dk /*+=*/, Matrix<Acc<T>> dv /*+=*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void attention(Device&, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
               Matrix<const T> v, Carry carry, AttentionState<Acc<T>> state);  // this function records its own launches and allocates scratch memory
template <class A>
void attention_merge(Device&, const AttentionShape& shape, AttentionState<A> other, AttentionState<A> state);
template <class T>
void attention_finish(Device&, const AttentionShape& shape, AttentionState<Acc<T>> state, Tensor2<T> out, Tensor2<Acc<T>> lse,
                      Tensor1<const Acc<T>> sinks);
template <class A>
void attention_sink_terms(Device&, Tensor1<const A> sinks, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms);
template <class T>
void attention_delta(Device&, const AttentionShape& shape, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta);
template <class T>
void attention_backward(Device&, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
                        Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq,
                        Matrix<Acc<T>> dk,
                        Matrix<Acc<T>> dv);  // this function records its own launches and allocates scratch memory

}  // namespace backend

}  // namespace gyr
