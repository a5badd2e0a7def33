// SPDX-License-Identifier: BSD-3-Clause
// loss(r) = log sum_v exp(l(r,v)) - l(r, label(r)), over logits sharded by vocabulary.
//   R rows, V columns on this rank, the first of them token `first`; columns from `valid` on are padding and count as -infinity
// Three kernels with an all-reduce after each of the first two, so that no rank ever holds a full row of logits.
#pragma once

#include "kernels/ops/embedding.hpp"
#include "kernels/ops/soft_cap.hpp"

namespace gyr {

inline constexpr Token ignored_label = -100;

// Optional terms of the loss. With lse = log sum_v exp(l(r,v)) over all vocab_size tokens:
//   loss(r) = lse - (1 - smoothing) l(r, label(r)) - smoothing / vocab_size sum_v l(r,v) + z lse^2 - entropy H(r)
//   H(r) = -sum_v p_v ln p_v, with p_v = exp(l(r,v) - lse): entropy of the softmax of the row
// smoothing as in PyTorch's cross_entropy (Megatron's is vocab_size / (vocab_size - 1) times that); z: PaLM (Chowdhery et al. 2022), section 5;
// entropy: confidence penalty (Pereyra et al. 2017), entropy bonus of policy gradients.
struct LossTerms {
  double smoothing = 0, z = 0;
  Index vocab_size = 0;
  double entropy = 0;
  Index sums() const { return entropy != 0 ? 4 : smoothing > 0 ? 3 : 2; }  // number of sums per row
};

// Factors on the gradients of rows: on that of the whole loss, and on the entropy term besides. Empty: 1.
struct RowWeights {
  Tensor1<const double> loss = {}, entropy = {};  // (R)
};

// Columns of a row of logits: `held` columns in memory. The first `valid` columns are tokens, numbered from `first`.
struct LogitColumns {
  Index held, valid, first;

  template <class A>
  LogitColumns(const Tensor2<const A>& logits, Index valid, Index first) : held(logits.extent(1)), valid(valid > 0 ? valid : 0), first(first) {}

  // Column of a label, or -1 if this rank does not hold it.
  GYR_FUNCTION Index of(Token label) const {
    const Index c = Index(label) - first;
    return label != ignored_label && c >= 0 && c < valid ? c : -1;
  }
};

// top(r) = max over valid columns, or the lowest value of A if there is none.
template <class A>
void logits_top(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<A> top /*(R)*/);

// sums(0, r) = sum over valid columns of exp(l - top)
// sums(1, r) = l(label) - top if this rank holds the label, else 0
// sums(2, r) = sum over valid columns of l - top, if there is a third row
// sums(3, r) = sum over valid columns of exp(l - top) (l - top), if there is a fourth row:  H(r) = log sums(0, r) - sums(3, r) / sums(0, r)
template <class A>
void logits_sums(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first,
                 Tensor2<A> sums /*(2 to 4,R)*/);

// found(r) = -v for the first token v of this rank whose logit is top(r), or the lowest value of A if there is none.
// The maximum over all ranks is minus the id of the most likely token. Token ids must be exact in A.
template <class A>
void logits_argmax(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found /*(R)*/);

// H(r), from the four sums over all ranks; 0 if the label is ignored_label.
template <class A>
void row_entropies(Device&, Tensor2<const A> sums /*(4,R)*/, Tensor1<const Token> labels, Tensor1<double> entropies /*(R)*/);

// The loss from the sums over all ranks: log sums(0, r) - sums(1, r), plus the optional terms; zero if the label is
// ignored_label.
template <class A>
void cross_entropy(Device&, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms&, Tensor1<double> loss /*(R)*/);

// Gradient of the loss times scale(0), which is in device memory (1 if scale is empty). Without the optional terms:
//   dlogits(r, v) = scale (exp(l - top) / sums(0, r) - [first + v == label]),   zero in rows of ignored_label and in padding columns
// The entropy term adds scale entropy p_v (ln p_v + H(r)). In row r, scale is multiplied by weights.loss(r), except in the entropy
// term, where it is multiplied by weights.entropy(r).
// soft_cap > 0: the logits are the output of that soft cap, and dlogits is the gradient of its input. dlogits may be the memory of logits if T is A.
template <class T>
void cross_entropy_backward(Device&, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale /*(1)*/, const LossTerms&,
                            Tensor2<T> dlogits /*(R,V)*/, double soft_cap = 0, const RowWeights& weights = {});

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void logits_top(Device&, Tensor2<const A> logits, Index valid, Tensor1<A> top);
template <class A>
void logits_sums(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first, Tensor2<A> sums);
template <class A>
void logits_argmax(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found);
template <class A>
void row_entropies(Device&, Tensor2<const A> sums, Tensor1<const Token> labels, Tensor1<double> entropies);
template <class A>
void cross_entropy(Device&, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms&, Tensor1<double> loss);
template <class T>
void cross_entropy_backward(Device&, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale, const LossTerms&, Tensor2<T> dlogits,
                            double soft_cap, const RowWeights&);

}  // namespace backend

}  // namespace gyr
