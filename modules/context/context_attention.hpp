// SPDX-License-Identifier: BSD-3-Clause
// Attention of ranks that share sequences: where the keys of a query lie on other ranks, and how the two meet is the mode's.
#pragma once

#include <memory>

#include "kernels/ops/elementwise.hpp"
#include "modules/pass/pass.hpp"

namespace gyr {

// Of a rank's heads, where there are any (kernels/ops/attention.hpp).
template <class A>
struct Sinks {
  Tensor1<const A> values = {};
  Tensor1<A> gradient = {};  // none where they are not trained

  Sinks of_heads(Index first, Index count) const {
    if (values.span() == 0) return {};
    return {rows(values, first, count), gradient.span() > 0 ? rows(gradient, first, count) : gradient};
  }
};

// Adds their gradient, of rows and heads that have these statistics.
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
  // out = of this rank's rows and all its heads. lse: as many numbers as rows and heads, for the backward of the same mode.
  virtual void forward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<T> out, Tensor2<Acc<T>> lse, const Sinks<Acc<T>>& = {}) = 0;
  // Gradients of this rank's rows, where zeros were. delta: of these and all heads.
  virtual void backward(Matrix<const T> q, Matrix<const T> k, Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse,
                        Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq, Matrix<Acc<T>> dk, Matrix<Acc<T>> dv, const Sinks<Acc<T>>& = {}) = 0;
};

// As the sequences of the pass say. `heads`: numbers and widths of heads on this rank; its batch and tokens mean nothing. `window`: of the mask.
template <class T>
std::unique_ptr<ContextAttention<T>> context_attention(Pass& a, const AttentionShape& heads, const ScoreRule& scores, Index window);

// A state that attention_finish makes `out` and `lse` of: in their memory as far as it fits, and until the end of the scope.
template <class T>
AttentionState<Acc<T>> online_softmax_state(Pass& a, Tensor2<T> out, Tensor2<Acc<T>> lse) {
  AttentionState<Acc<T>> state{{}, lse, a.scratch<Acc<T>>("sums", Index(lse.extent(0)), Index(lse.extent(1)))};
  if constexpr (std::is_same_v<T, Acc<T>>) state.o = out;
  else state.o = a.scratch<Acc<T>>("attended, wide", Index(out.extent(0)), Index(out.extent(1)));
  return state;
}

}  // namespace gyr
