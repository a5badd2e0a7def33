// SPDX-License-Identifier: BSD-3-Clause
// Loss of a reward model on pairs of a chosen and a rejected text (Bradley and Terry 1952; Ouyang et al. 2022, equation 1):
//   loss of a pair = ln(1 + exp(-(s_c - s_r))) + center (s_c + s_r)^2
//   s the value of the text's last row, center train.reward.center
// The first term is the cross-entropy over the two columns s_c and s_r, with the first one as label. Context-parallel ranks
// all-reduce the values of texts, and the first of these ranks counts the pairs.
#pragma once

#include "modules/objectives/scalar_head.hpp"

namespace gyr {

template <class T>
class RewardLoss : public ScalarHead<T> {
 public:
  RewardLoss(const ModelConfig& c, const Output& output, Parameter* bias, Parameters& parameters)
      : ScalarHead<T>(c, output, bias, parameters), center_(output.pair_scale) {}

 protected:
  using A = Acc<T>;
  // `scores` receives the value of every row in the place of its loss, the values of the texts, and the margins s_c - s_r.
  void loss_of(Pass&, Tensor1<const A> y /*(R)*/, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, Tensor1<A> dy /*(R)*/,
               ObjectiveScores* scores) override;

 private:
  Tensor2<double> values_of_texts(Pass&, Tensor1<const A> y, const NamedDeviceValues&);
  void record(Pass&, Tensor1<const A> y, Tensor2<const double> values, const NamedDeviceValues&, ObjectiveScores&);

  double center_;
};

}  // namespace gyr
