// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/policy_loss.hpp"

#include "kernels/ops/sum.hpp"
#include "modules/pass/stream.hpp"

namespace gyr {

template <class T>
void PolicyLoss<T>::score(Pass& a, Tensor2<T> kept, const Labels& labels, Tensor1<const double> scales, Tensor1<double> sums,
                          ObjectiveScores* scores) {
  if (scales.extent(0) == 0) return VocabularyHead<T>::score(a, kept, labels, {}, sums, scores);
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "head: rows x hidden");
  AllRows<T> all(a, "normed, all rows", kept);
  const Tensor2<T> h = all.gather();
  const Index n = h.extent(0);
  const auto cross_entropy = a.scratch<double>("cross-entropy of rows", n), H = a.scratch<double>("entropies of rows", n);
  const auto ignored = a.scratch<double>("sum of the cross-entropies", Index(1));
  fill<double>(a.dev, ignored, 0);
  this->score_all(a, h, {.labels = labels.of_rows, .losses = cross_entropy, .entropies = H}, {}, ignored, nullptr);
  typename VocabularyHead<T>::Rows rows{.labels = labels.of_rows};
  rows.weights = {weights_of(a, cross_entropy, H, labels.values, sums), labels.values.at(policy_field::entropy)};
  rows.terms = LossTerms{.entropy = policy_.entropy_bonus ? 1.0 : 0.0};
  this->score_all(a, h, rows, gyr::rows(scales, 0, 1), ignored, nullptr);
  all.reduce();
}

// Weights of the rows' cross-entropies in the gradient. Adds the loss and the figures to `sums`.
template <class T>
Tensor1<const double> PolicyLoss<T>::weights_of(Pass& a, Tensor1<const double> cross_entropy, Tensor1<const double> H,
                                                const NamedDeviceValues& values, Tensor1<double> sums) {
  using namespace policy_field;
  const Index n = cross_entropy.extent(0);
  const auto weights = a.scratch<double>("weights of rows", n);
  Scope scope(a.dev.scratch);
  const auto losses = a.scratch<double>("losses of rows", n), kl_weights = a.scratch<double>("weights of rows by the KL divergence", n);
  const auto figures = a.scratch<double>("figures of rows", policy_figures, n);
  PolicyRows rows{.cross_entropy = cross_entropy,
                  .q = {},
                  .old = values.at(old),
                  .reference = values.at(reference),
                  .advantage = values.at(advantage),
                  .correction = values.at(correction),
                  .g = values.at(weight_in_loss),
                  .kl = values.at(kl),
                  .entropy = values.at(entropy),
                  .share = values.at(share),
                  .H = H};
  if (policy_.old_of_step) rows.q = no_change(a, n);
  else if (policy_.ratio == PolicyRatio::sequence) rows.q = log_ratios(a, cross_entropy, values);
  policy_loss(a.dev, rows, policy_.clip, policy_.kl, losses, weights, kl_weights, figures);
  if (policy_.ratio == PolicyRatio::sequence) average(a, weights, 1, values);
  add<double>(a.dev, kl_weights, weights);
  add_in_order(a.dev, losses, gyr::rows(sums, 0, 1));
  for (Index f = 0; f < policy_figures; ++f) add_in_order(a.dev, gyr::rows(flat(figures), f * n, n), gyr::rows(sums, 1 + f, 1));
  return weights;
}

// Log-ratios of a policy that has not changed.
template <class T>
Tensor1<double> PolicyLoss<T>::no_change(Pass& a, Index rows) {
  const auto q = a.scratch<double>("log-ratios of rows", rows);
  fill<double>(a.dev, q, 0);
  return q;
}

// Mean of x - o over the answer of each row.
template <class T>
Tensor1<double> PolicyLoss<T>::log_ratios(Pass& a, Tensor1<const double> cross_entropy, const NamedDeviceValues& values) {
  const auto q = a.scratch<double>("log-ratios of answers", Index(cross_entropy.extent(0)));
  convert<double, double>(a.dev, column(values.at(policy_field::old)), column(q));
  add<double>(a.dev, cross_entropy, q);
  average(a, q, -1, values);
  return q;
}

// Replaces the values of the rows by `factor` times their mean over the answer; 0 outside of answers.
template <class T>
void PolicyLoss<T>::average(Pass& a, Tensor1<double> of_rows, double factor, const NamedDeviceValues& values) {
  const Tensor1<const double> inverse = values.at(policy_field::inverse_length);
  const Tensor1<const Token> answers = values.at(policy_field::answer);
  Scope scope(a.dev.scratch);
  const auto sums = a.scratch<double>("sums of answers", Index(inverse.extent(0)));
  fill<double>(a.dev, sums, 0);
  embedding_backward<double>(a.dev, answers, column(of_rows), 0, factor, -1, column(sums));
  if (a.context) a.context->all_reduce(a.dev, sums);
  bias_scale<double>(a.dev, {}, inverse, Tensor2<double>(sums.data(), 1, sums.extent(0)));
  embedding<double>(a.dev, answers, column(sums), 0, 1, column(of_rows));
}

template class PolicyLoss<double>;
template class PolicyLoss<float>;
template class PolicyLoss<bf16>;

}  // namespace gyr
