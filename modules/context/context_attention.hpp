// SPDX-License-Identifier: BSD-3-Clause
// Attention with context parallelism, where keys may be on other ranks than the query. ContextMode selects how queries
// and keys are exchanged.
#pragma once

#include <memory>

#include "kernels/ops/elementwise.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

// Attention sinks of this rank's heads: one learned score per head that joins the softmax (kernels/ops/attention.hpp).
template <class A>
struct Sinks {
  Tensor1<const A> values = {};  // one score per head; empty: the model has no sinks
  Tensor1<A> gradient = {};      // accumulated gradient of these scores; empty: sinks are not trained

  Sinks of_heads(Index first, Index count) const {
    if (values.span() == 0) return {};
    return {rows(values, first, count), gradient.span() > 0 ? rows(gradient, first, count) : gradient};
  }
};

// Adds the gradient of the sinks, given lse and delta for these rows and heads.
template <class A>
void sinks_backward(Pass& a, const Sinks<A>& sinks, Tensor2<const A> lse, Tensor2<const A> delta) {
  if (sinks.gradient.span() == 0) return;
  Scope scope(a.dev.scratch);
  const auto terms = a.scratch<A>("terms of the gradient of sinks", Index(lse.extent(0)), Index(lse.extent(1)));
  attention_sink_terms<A>(a.dev, sinks.values, lse, delta, terms);
  bias_backward<A>(a.dev, terms, 1, sinks.gradient);
}

template <class T>
class ContextAttention {
 public:
  virtual ~ContextAttention() = default;
  // out: this rank's rows and all its heads. lse: log-sum-exp of the scores, one value per row and head, stored for the
  // backward of the same mode.
  virtual void forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<Acc<T>> lse, const Sinks<Acc<T>>& = {}) = 0;
  // Gradients of this rank's rows; dq, dk and dv must be zero on entry. delta (rows, heads): dot products of dout and
  // out over the channels of a head.
  virtual void backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse,
                        Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv, const Sinks<Acc<T>>& = {}) = 0;
};

// Attention in the context-parallel mode of the pass. `heads`: number and widths of the heads on this rank; its batch
// and token counts are ignored. `window`: sliding window in tokens; 0: none.
template <class T>
std::unique_ptr<ContextAttention<T>> context_attention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);

// Online-softmax state from which attention_finish() computes `out` and `lse`. It uses their memory as far as possible,
// and scratch until the end of the scope.
template <class T>
AttentionState<Acc<T>> online_softmax_state(Pass& a, Tensor2<T> out, Tensor2<Acc<T>> lse) {
  AttentionState<Acc<T>> state{{}, lse, a.scratch<Acc<T>>("softmax sums", Index(lse.extent(0)), Index(lse.extent(1)))};
  if constexpr (std::is_same_v<T, Acc<T>>) state.o = out;
  else state.o = a.scratch<Acc<T>>("attention output, wide", Index(out.extent(0)), Index(out.extent(1)));
  return state;
}

}  // namespace gyr
