// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/paired_loss.hpp"

#include "kernels/ops/sum.hpp"
#include "modules/objectives/text_pairs.hpp"
#include "modules/pass/stream.hpp"

namespace gyr {

template <class T>
void PairedLoss<T>::score(Pass& a, Tensor2<T> kept, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* scores) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "head: rows x hidden");
  AllRows<T> all(a, "normed, all rows", kept);
  const Tensor2<T> h = all.gather();
  const auto losses = a.scratch<double>("losses of rows", Index(h.extent(0))), of_rows = a.scratch<double>("sum of the row losses", Index(1));
  fill<double>(a.dev, of_rows, 0);
  this->score_all(a, h, {labels.of_rows, losses}, {}, of_rows, scores ? &scores->rows : nullptr);
  const auto rewards = rewards_of(a, losses, labels.values);
  if (scores && !a.dev.dry_run()) record_rewards(a, rewards, labels.values, *scores);
  const bool trains = scale.extent(0) > 0;
  compare(a, rewards, labels.values, trains, sum);
  if (!trains) return;
  this->score_all(a, h, {.labels = labels.of_rows, .weights = {.loss = weights_of(a, rewards, labels.values)}}, scale, of_rows, nullptr);
  all.reduce();
}

template <class T>
void PairedLoss<T>::record_rewards(Pass& a, Tensor2<const double> rewards, const NamedDeviceValues& values, ObjectiveScores& scores) {
  if (a.context && a.context->rank() > 0) return;
  const std::vector<double>& of_texts = scores.of_texts = to_host(a.dev, flat(rewards));
  const auto labels = to_host(a.dev, values.at(label_of_pair));
  for (std::size_t p = 0; p < labels.size(); ++p)
    if (labels[p] != ignored_label) scores.margins.push_back(of_texts[2 * p] - of_texts[2 * p + 1]);
}

// Rewards (P,2): scale * (loss of the reference model - loss) for each text.
template <class T>
Tensor2<double> PairedLoss<T>::rewards_of(Pass& a, Tensor1<const double> losses, const NamedDeviceValues& values) {
  const Index count = values.at(label_of_pair).extent(0);
  const auto rewards = a.scratch<double>("rewards of texts", count, Index(2));
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "losses of texts");
  const auto scales = a.scratch<double>("scale", Index(2));
  fill<double>(a.dev, scales, -scale_);
  fill<double>(a.dev, flat(rewards), 0);
  embedding_backward<double>(a.dev, values.at(text_of_row), column(losses), 0, 1, -1, column(flat(rewards)));
  if (a.context) a.context->all_reduce(a.dev, flat(rewards));
  add<double>(a.dev, values.at(reference_of_text), flat(rewards));
  bias_scale<double>(a.dev, {}, scales, rewards);
  return rewards;
}

// Adds the losses of the pairs to `sum`. With `gradient`, replaces the rewards by their gradients.
template <class T>
void PairedLoss<T>::compare(Pass& a, Tensor2<double> rewards, const NamedDeviceValues& values, bool gradient, Tensor1<double> sum) {
  const Index count = rewards.extent(0);
  Scope scope(a.dev.scratch);
  const auto top = a.scratch<double>("larger reward", count), losses = a.scratch<double>("losses of pairs", count);
  const auto sums = a.scratch<double>("sums of pairs", LossTerms().sums(), count);
  logits_top<double>(a.dev, rewards, 2, top);
  logits_sums<double>(a.dev, rewards, 2, top, values.at(label_of_pair), 0, sums);
  cross_entropy<double>(a.dev, sums, top, values.at(label_of_pair), {}, losses);
  if (!a.context || a.context->rank() == 0) add_in_order(a.dev, losses, sum);
  if (gradient) cross_entropy_backward<double>(a.dev, rewards, 2, top, sums, values.at(label_of_pair), 0, {}, {}, rewards);
}

// Weight of each row's loss: -scale * gradient of the reward of its text; 0 for a row of no text.
template <class T>
auto PairedLoss<T>::weights_of(Pass& a, Tensor2<double> gradient, const NamedDeviceValues& values) -> Tensor1<double> {
  const auto weights = a.scratch<double>("weights of rows", Index(values.at(text_of_row).extent(0)));
  Scope scope(a.dev.scratch);
  const auto factors = a.scratch<double>("scale", Index(2));
  fill<double>(a.dev, factors, -scale_);
  bias_scale<double>(a.dev, {}, factors, gradient);
  embedding<double>(a.dev, values.at(text_of_row), column(flat(gradient)), 0, 1, column(weights));
  return weights;
}

template class PairedLoss<double>;
template class PairedLoss<float>;
template class PairedLoss<bf16>;

}  // namespace gyr
