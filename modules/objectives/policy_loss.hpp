// SPDX-License-Identifier: BSD-3-Clause
// Head of policy training from rewards. kernels/ops/policy/policy_loss.hpp has the loss of a row. The rows are scored first, and then
// computed again for the gradient, each row with a weight of its own. With PolicyRatio::sequence, the log-ratio of a row is the mean
// over its answer, and so is the weight:
//   q = 1/T sum over the answer's T tokens of (x - o),   weight(r) = 1/T sum over the answer of ratio_weight + kl_weight(r)
// Context-parallel ranks all-reduce these sums. Logits are divided by the temperature that the answers were drawn with.
#pragma once

#include "modules/objectives/policy_settings.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

template <class T>
class PolicyLoss : public VocabularyHead<T> {
 public:
  using VocabularyHead<T>::VocabularyHead;

 protected:
  // In training, sum(0) receives the loss, and the further elements the figures (PolicyFigure). Otherwise the sum is the cross-entropy
  // of the answers, and row scores are those of VocabularyHead.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scales, Tensor1<double> sums, ObjectiveScores* scores);

 private:
  Tensor1<double> log_ratios(Pass&, Tensor1<const double> cross_entropy, const NamedDeviceValues&);
  Tensor1<double> no_change(Pass&, Index rows);
  void average(Pass&, Tensor1<double> of_rows, double factor, const NamedDeviceValues&);
  Tensor1<const double> weights_of(Pass&, Tensor1<const double> cross_entropy, Tensor1<const double> H, const NamedDeviceValues&,
                                   Tensor1<double> sums);

 protected:
  PolicySettings policy_;  // set by PolicyHead
};

template <class T>
class PolicyHead final : public FrontedHead<T, FinalNorm, PolicyLoss> {
 public:
  PolicyHead(const ModelConfig& c, const Output& output, const PolicySettings& settings, Parameters& parameters)
      : FrontedHead<T, FinalNorm, PolicyLoss>(c, output, parameters) {
    this->policy_ = settings;
  }
};

}  // namespace gyr
