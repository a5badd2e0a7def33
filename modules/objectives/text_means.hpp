// SPDX-License-Identifier: BSD-3-Clause
// Every row becomes the mean over the rows of its text: a document, or a sequence where none are packed. Where ranks share sequences they add up what
// each has of a text.
//   y = M x,  M(r, s) = 1 / tokens of the text where r and s belong to one, 0 elsewhere:  M' = M
#pragma once

#include "modules/pass/pass.hpp"

namespace gyr {

template <class T>
class TextMeans {
 public:
  TextMeans(Pass& a, Frame& frame) : a_(a), frame_(frame) {}
  // Of the rows of the stream that this rank keeps. The forward puts into the frame which text each row belongs to.
  void forward(Tensor2<T> x, Tensor2<T> y) { apply(index_texts(), x, y); }
  void backward(Tensor2<T> dy, Tensor2<T> dx) { apply(frame_.get(text), dy, dx); }

 private:
  using A = Acc<T>;
  static constexpr Key<Tensor1<std::int32_t>> text{"texts of rows"};
  // A text is numbered by its first row among all ranks' rows.
  Tensor1<const std::int32_t> index_texts();
  std::vector<std::int32_t> numbered() const;
  Index most_texts() const { return a_.sequences.batch * a_.sequences.whole_length(); }
  void apply(Tensor1<const std::int32_t> text, Tensor2<T> x, Tensor2<T> y);
  Tensor2<A> sums_of(Tensor2<const T> all, Tensor1<const std::int32_t> text);

  Pass& a_;
  Frame& frame_;
};

}  // namespace gyr
