// SPDX-License-Identifier: BSD-3-Clause
// Head of a critic: the value of a row is the return that is expected after its token. kernels/ops/policy/value_loss.hpp has the loss of a row.
#pragma once

#include "modules/objectives/policy_settings.hpp"
#include "modules/objectives/scalar_head.hpp"

namespace gyr {

template <class T>
class ValueLoss : public ScalarHead<T> {
 public:
  using ScalarHead<T>::ScalarHead;

 protected:
  using A = Acc<T>;
  // `scores` receives the value of every row in the place of its loss. In training, sum(1) receives the weights of the clipped rows.
  void loss_of(Pass&, Tensor1<const A> y /*(R)*/, const Labels&, Tensor1<const double> scales, Tensor1<double> sums, Tensor1<A> dy /*(R)*/,
               ObjectiveScores* scores) override;

  double clip_ = 0;  // clip width; set by ValueHead
};

template <class T>
class ValueHead final : public FrontedHead<T, FinalNorm, ValueLoss> {
 public:
  ValueHead(const ModelConfig& c, const Output& output, double clip, Parameters& parameters)
      : FrontedHead<T, FinalNorm, ValueLoss>(c, output, parameters) {
    this->clip_ = clip;
  }
};

}  // namespace gyr
