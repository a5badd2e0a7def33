// SPDX-License-Identifier: BSD-3-Clause
// loss(r) = log sum_v exp(l(r,v)) - l(r, label(r)), over logits sharded by vocabulary.
//   R rows, V columns on this rank, the first of them token `first`; columns from `valid` on are padding and count as -infinity
// Three kernels with an all-reduce after each of the first two, so that no rank ever holds a whole row.
#pragma once

#include "kernels/ops/embedding.hpp"
#include "kernels/ops/soft_cap.hpp"

namespace gyr {

inline constexpr Token ignored_label = -100;

// What may be added to it. With lse = log sum_v exp(l(r,v)) over all of vocab_size tokens:
//   loss(r) = lse - (1 - smoothing) l(r, label(r)) - smoothing / vocab_size sum_v l(r,v) + z lse^2
// smoothing as in PyTorch's cross_entropy (Megatron's is vocab_size / (vocab_size - 1) times that); z: PaLM (Chowdhery et al. 2022), section 5.
struct LossTerms {
  double smoothing = 0, z = 0;
  Index vocab_size = 0;
  Index sums() const { return smoothing > 0 ? 3 : 2; }  // of each row
};

// Columns of a row of logits: `held` of them in memory, the first `valid` of them tokens from `first` on.
struct LogitColumns {
  Index held, valid, first;

  template <class A>
  LogitColumns(const Tensor2<const A>& logits, Index valid, Index first) : held(logits.extent(1)), valid(valid > 0 ? valid : 0), first(first) {}

  // The column of a label, or -1 where it is elsewhere.
  GYR_FUNCTION Index of(Token label) const {
    const Index c = Index(label) - first;
    return label != ignored_label && c >= 0 && c < valid ? c : -1;
  }
};

// top(r) = max over valid columns (lowest number where there is none).
template <class A>
void logits_top(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<A> top /*(R)*/);

// sums(0, r) = sum over valid columns of exp(l - top), sums(1, r) = l(label) - top where this rank holds the label, else 0, and, where there is
// a third, sums(2, r) = sum over valid columns of l - top.
template <class A>
void logits_sums(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first,
                 Tensor2<A> sums /*(2 or 3,R)*/);

// found(r) = -v of the first of this rank's tokens v whose logit is top(r), the lowest number where it has none: the largest of all ranks is that of
// the likeliest token. Token ids must be exact in A.
template <class A>
void logits_argmax(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found /*(R)*/);

// The loss from sums of all ranks: without terms log sums(0, r) - sums(1, r); zero where the label is ignored_label.
template <class A>
void cross_entropy(Device&, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms&, Tensor1<double> loss /*(R)*/);

// scale(0), which lies on the device, or 1 where there is none, times the gradient of the loss: without terms dlogits(r, v) = scale (exp(l - top) /
// sums(0, r) - [first + v == label]); zero in rows of ignored_label and in padding columns. soft_cap: where the logits are what that cap left of
// others, the gradient of those; 0: there was none. dlogits may be the logits' own memory where T is A.
template <class T>
void cross_entropy_backward(Device&, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale /*(1)*/, const LossTerms&,
                            Tensor2<T> dlogits /*(R,V)*/, double soft_cap = 0);

}  // namespace gyr
