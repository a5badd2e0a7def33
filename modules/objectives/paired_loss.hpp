// SPDX-License-Identifier: BSD-3-Clause
// Direct preference optimization (DPO; Rafailov et al. 2023), equation 7, for a chosen text c and a rejected text r:
//   loss = -ln sigmoid(b (s_c - ref_c) - b (s_r - ref_r))
//   b pair_scale (DPO beta), s sum of ln p over the target tokens of a text, ref the same sum of the reference model
// This is the cross-entropy over two columns, the rewards b (s - ref), with the first one as label. A reward depends on all rows of its text.
// The rows are therefore scored first, and then computed again for the gradient, each row with a weight of its own:
//   dloss/ds_c = -b sigmoid(reward_r - reward_c) = -dloss/ds_r
// Context-parallel ranks all-reduce the sums of each text, and the first of these ranks counts the pairs.
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
  // As VocabularyHead::score. Row scores are those of the text tokens; the rewards of the texts and the margins of the pairs are added to `scores`.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* scores);

 private:
  void record_rewards(Pass&, Tensor2<const double> rewards, const NamedDeviceValues&, ObjectiveScores&);
  Tensor2<double> rewards_of(Pass&, Tensor1<const double> losses, const NamedDeviceValues&);
  void compare(Pass&, Tensor2<double> rewards, const NamedDeviceValues&, bool gradient, Tensor1<double> sum);
  Tensor1<double> weights_of(Pass&, Tensor2<double> gradient, const NamedDeviceValues&);

  double scale_;
};

}  // namespace gyr
