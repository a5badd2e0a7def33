// SPDX-License-Identifier: BSD-3-Clause
// Mean pooling: every row becomes the mean over the rows of its text. A text is a document, or a sequence if documents are not packed.
//   y = M x,  M(r, s) = 1 / n if rows r and s belong to the same text of n tokens, 0 otherwise:  M' = M
// Context-parallel ranks all-reduce their partial sums of each text.
#pragma once

#include "modules/pass/pass.hpp"

namespace gyr {

template <class T>
class TextMeans {
 public:
  TextMeans(Pass& a, Frame& frame) : a_(a), frame_(frame) {}
  // x, y: rows of the residual stream that this rank keeps. The forward stores the text index of each row in the frame.
  void forward(Tensor2<T> x, Tensor2<T> y) { apply(index_texts(), x, y); }
  void backward(Tensor2<T> dy, Tensor2<T> dx) { apply(frame_.get(text), dy, dx); }

 private:
  using A = Acc<T>;
  static constexpr Key<Tensor1<std::int32_t>> text{"text index of each row"};
  // The index of a text is the index of its first row in the unsharded micro-batch.
  Tensor1<const std::int32_t> index_texts();
  std::vector<std::int32_t> numbered() const;
  Index most_texts() const { return a_.sequences.batch * a_.sequences.full_length(); }
  void apply(Tensor1<const std::int32_t> text, Tensor2<T> x, Tensor2<T> y);
  Tensor2<A> sums_of(Tensor2<const T> all, Tensor1<const std::int32_t> text);

  Pass& a_;
  Frame& frame_;
};

}  // namespace gyr
