// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/cross_entropy.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class A>
LogitColumns checked(const char* kernel, const Tensor2<const A>& logits, Index valid, Index first, Index other_rows) {
  const Index rows = logits.extent(0), held = logits.extent(1);
  ensure(valid <= held && other_rows == rows, "{}: logits ({},{}) do not fit {} valid columns and {} rows", kernel, rows, held, valid, other_rows);
  return {logits, valid, first};
}

}  // namespace

template <class A>
void logits_top(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<A> top) {
  const Index rows = logits.extent(0);
  const LogitColumns columns = checked("logits_top", logits, valid, 0, top.extent(0));
  if (const auto run = dev.launch("logits_top", double(rows) * columns.valid, double(sizeof(A)) * rows * columns.valid))
    backend::logits_top<A>(dev, logits, valid, top);
}

template <class A>
void logits_sums(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first, Tensor2<A> sums) {
  const Index rows = logits.extent(0);
  const LogitColumns columns = checked("logits_sums", logits, valid, first, sums.extent(1));
  ensure(sums.extent(0) >= 2 && sums.extent(0) <= 4 && Index(top.extent(0)) == rows && Index(labels.extent(0)) == rows,
         "logits_sums: {} rows do not fit {} maxima, {} labels and {} sums per row", rows, top.extent(0), labels.extent(0), sums.extent(0));
  if (const auto run = dev.launch("logits_sums", 3.0 * rows * columns.valid, double(sizeof(A)) * rows * columns.valid))
    backend::logits_sums<A>(dev, logits, valid, top, labels, first, sums);
}

template <class A>
void logits_argmax(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found) {
  const Index rows = logits.extent(0);
  const LogitColumns columns = checked("logits_found", logits, valid, first, found.extent(0));
  ensure(Index(top.extent(0)) == rows, "logits_found: {} rows but {} maxima", rows, top.extent(0));
  if (const auto run = dev.launch("logits_found", double(rows) * columns.valid, double(sizeof(A)) * rows * columns.valid))
    backend::logits_argmax<A>(dev, logits, valid, top, first, found);
}

template <class A>
void row_entropies(Device& dev, Tensor2<const A> sums, Tensor1<const Token> labels, Tensor1<double> entropies) {
  const Index rows = entropies.extent(0);
  ensure(sums.extent(0) == 4 && Index(sums.extent(1)) == rows && Index(labels.extent(0)) == rows,
         "row_entropies: sums ({},{}) and {} labels do not fit {} entropies", sums.extent(0), sums.extent(1), labels.extent(0), rows);
  if (const auto run = dev.launch("row_entropies", 3.0 * rows, (2.0 * sizeof(A) + sizeof(Token) + sizeof(double)) * rows))
    backend::row_entropies<A>(dev, sums, labels, entropies);
}

template <class A>
void cross_entropy(Device& dev, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms& terms,
                   Tensor1<double> loss) {
  const Index rows = loss.extent(0);
  ensure(Index(sums.extent(0)) >= terms.sums() && Index(top.extent(0)) == rows && Index(sums.extent(1)) == rows && Index(labels.extent(0)) == rows,
         "cross_entropy: sums ({},{}) and {} labels do not fit {} losses", sums.extent(0), sums.extent(1), labels.extent(0), rows);
  if (const auto run = dev.launch("cross_entropy", 2.0 * rows, (2.0 * sizeof(A) + sizeof(Token) + sizeof(double)) * rows))
    backend::cross_entropy<A>(dev, sums, top, labels, terms, loss);
}

template <class T>
void cross_entropy_backward(Device& dev, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale, const LossTerms& terms, Tensor2<T> dlogits,
                            double soft_cap, const RowWeights& weights) {
  using A = Acc<T>;
  const Index rows = logits.extent(0);
  const LogitColumns columns = checked("cross_entropy_backward", logits, valid, first, dlogits.extent(0));
  ensure(Index(sums.extent(0)) >= terms.sums() && Index(sums.extent(1)) == rows && Index(top.extent(0)) == rows && Index(labels.extent(0)) == rows &&
             Index(dlogits.extent(1)) == columns.held,
         "cross_entropy_backward: logits ({},{}) do not fit {} maxima, {} sums, {} labels and {} columns of dlogits", rows, columns.held,
         top.extent(0), sums.extent(1), labels.extent(0), dlogits.extent(1));
  for (const auto& of_rows : {weights.loss, weights.entropy})
    ensure(!of_rows.data() || Index(of_rows.extent(0)) == rows, "cross_entropy_backward: {} weights do not fit {} rows", of_rows.extent(0), rows);
  if (const auto run = dev.launch("cross_entropy_backward", (soft_cap > 0 ? 7.0 : 3.0) * rows * columns.valid,
                                  double(sizeof(A) + sizeof(T)) * rows * columns.held))
    backend::cross_entropy_backward<T>(dev, logits, valid, top, sums, labels, first, scale, terms, dlogits, soft_cap, weights);
}

GYR_ALL_LOSS

}  // namespace gyr
