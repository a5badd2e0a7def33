// SPDX-License-Identifier: BSD-3-Clause
// Scalar head: one output column without bias, the value of each row, for reward and value models.
//   y(r) = w . h(r),   dw += sum over rows of dy(r) h(r),   dh(r) = dy(r) w
//   h normed rows of the residual stream, w weight score.weight (1,D), dy gradient of the loss with respect to y
// One tensor-parallel rank holds w, and the values are all-reduced over the ranks. A loss derives from this class, and
// is the third argument of FrontedHead:
//   template <class T>
//   struct SquaredError : ScalarHead<T> {
//     using ScalarHead<T>::ScalarHead;
//     void loss_of(...) override;
//   };
//   template <class T>
//   using ValueHead = FrontedHead<T, FinalNorm, SquaredError>;   made with output_of_values
#pragma once

#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

inline const Output output_of_values{.name = "score", .columns = 1};

template <class T>
class ScalarHead : public VocabularyHead<T> {
 public:
  using VocabularyHead<T>::VocabularyHead;

 protected:
  using A = Acc<T>;
  // As VocabularyHead::score. Every tensor-parallel rank calls loss_of with the same values.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* scores);

  // Adds the loss of all rows to `sum`. With `scale` (1) in device memory, sets dy to the gradient of scale * loss;
  // otherwise dy is empty. `scores`, if given, receives the score of every row.
  virtual void loss_of(Pass&, Tensor1<const A> y /*(R)*/, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, Tensor1<A> dy /*(R)*/,
                       ObjectiveScores* scores) = 0;

 private:
  Tensor1<A> values_of(Pass&, Tensor2<const T> h);
  void values_backward(Pass&, Tensor1<const A> dy, Tensor2<T> h);
};

}  // namespace gyr
