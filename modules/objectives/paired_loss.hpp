// SPDX-License-Identifier: BSD-3-Clause
// Direct preference optimisation (Rafailov et al. 2023), equation 7: of two texts c (chosen) and r (rejected), with b = pair_scale,
//   loss = -ln sigmoid(b (s_c - ref_c) - b (s_r - ref_r)),   s the sum of ln p over the learned tokens of a text,
// which is the cross-entropy of two columns, the rewards b (s - ref), whose label is the first. Sums of texts couple their rows: rows are measured
// first, and then computed once more for the gradient, each with a weight of its own:   dloss/ds_c = -b sigmoid(reward_r - reward_c) = -dloss/ds_r.
// Ranks that share sequences add up what each has of a text, and the first of them counts the pairs.
#pragma once

#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

template <class T>
class PairedLoss : public VocabularyHead<T> {
 public:
  PairedLoss(const ModelConfig& c, const Output& output, Parameter* bias, Parameters& parameters)
      : VocabularyHead<T>(c, output, bias, parameters), scale_(output.pair_scale) {}

 protected:
  using A = Acc<T>;
  // As of all heads; scores of rows are those of their tokens, and margins stand beside them.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* said);

 private:
  void record_margins(Pass&, Tensor2<const double> rewards, const Labels::Pairs&, ObjectiveScores&);
  Tensor2<double> rewards_of(Pass&, Tensor1<const double> losses, const Labels::Pairs&);
  void compare(Pass&, Tensor2<double> rewards, const Labels::Pairs&, bool gradient, Tensor1<double> sum);
  Tensor1<A> divisors_of(Pass&, Tensor2<const double> gradient, const Labels::Pairs&);

  double scale_;
};

}  // namespace gyr
