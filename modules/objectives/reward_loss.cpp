// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/reward_loss.hpp"

#include <cmath>

#include "kernels/ops/sum.hpp"
#include "modules/objectives/text_pairs.hpp"

namespace gyr {

namespace {

// One of the two columns of x (P,2).
template <class S>
Matrix<S> column_of(Tensor2<S> x, Index c) {
  return Matrix<S>(x.data() + c, Index(x.extent(0)), 1, 2);
}

void scale_by(Device& dev, double factor, Tensor1<double> factors /*(1)*/, Tensor2<double> x /*(P,1)*/) {
  fill<double>(dev, factors, factor);
  bias_scale<double>(dev, {}, factors, x);
}

}  // namespace

// Values (P,2) of the chosen and the rejected text of each pair; 0 for unused pairs.
template <class T>
Tensor2<double> RewardLoss<T>::values_of_texts(Pass& a, Tensor1<const A> y, const NamedDeviceValues& values) {
  const auto of_texts = a.scratch<double>("values of texts", Index(values.at(label_of_pair).extent(0)), Index(2));
  Scope scope(a.dev.scratch);
  const auto of_rows = a.scratch<double>("values of rows, wide", Index(y.extent(0)), Index(1));
  convert<A, double>(a.dev, column(y), of_rows);
  fill<double>(a.dev, flat(of_texts), 0);
  embedding_backward<double>(a.dev, values.at(text_of_row), of_rows, 0, 1, -1, column(flat(of_texts)));
  if (a.context) a.context->all_reduce(a.dev, flat(of_texts));
  return of_texts;
}

template <class T>
void RewardLoss<T>::loss_of(Pass& a, Tensor1<const A> y, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum, Tensor1<A> dy,
                            ObjectiveScores* scores) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "values of texts");
  const auto values = values_of_texts(a, y, labels.values);
  if (scores && !a.dev.dry_run()) record(a, y, values, labels.values, *scores);
  const Index pairs = values.extent(0);
  const auto label = labels.values.at(label_of_pair);
  const auto top = a.scratch<double>("larger value", pairs), losses = a.scratch<double>("losses of pairs", pairs);
  const auto sums = a.scratch<double>("sums of pairs", LossTerms().sums(), pairs);
  logits_top<double>(a.dev, values, 2, top);
  logits_sums<double>(a.dev, values, 2, top, label, 0, sums);
  cross_entropy<double>(a.dev, sums, top, label, {}, losses);
  const auto both = a.scratch<double>("sums of both values", pairs, Index(1));
  const auto factors = a.scratch<double>("factor", Index(1));
  convert<double, double>(a.dev, column_of<const double>(values, 0), both);
  add<double>(a.dev, column_of<const double>(values, 1), Matrix<double>(both));
  scale_by(a.dev, std::sqrt(center_), factors, both);
  if (!a.context || a.context->rank() == 0) {
    add_in_order(a.dev, losses, sum);
    add_sum_of_squares<double>(a.dev, flat(both), sum);
  }
  if (dy.extent(0) == 0) return;
  cross_entropy_backward<double>(a.dev, values, 2, top, sums, label, 0, {}, {}, values);
  scale_by(a.dev, 2 * std::sqrt(center_), factors, both);
  for (const Index c : {0, 1}) add<double>(a.dev, Matrix<const double>(both), column_of<double>(values, c));
  bias_scale<double>(a.dev, {}, scale, column(flat(values)));
  const auto of_rows = a.scratch<double>("gradient of values, wide", Index(dy.extent(0)), Index(1));
  embedding<double>(a.dev, labels.values.at(text_of_row), column(flat(values)), 0, 1, of_rows);
  convert<double, A>(a.dev, of_rows, column(dy));
}

template <class T>
void RewardLoss<T>::record(Pass& a, Tensor1<const A> y, Tensor2<const double> values, const NamedDeviceValues& named, ObjectiveScores& scores) {
  for (const A value : to_host(a.dev, y)) scores.rows.push_back({double(value), 0});
  if (a.context && a.context->rank() > 0) return;
  const std::vector<double>& of_texts = scores.of_texts = to_host(a.dev, flat(values));
  const auto labels = to_host(a.dev, named.at(label_of_pair));
  for (std::size_t p = 0; p < labels.size(); ++p)
    if (labels[p] != ignored_label) scores.margins.push_back(of_texts[2 * p] - of_texts[2 * p + 1]);
}

template class RewardLoss<double>;
template class RewardLoss<float>;
template class RewardLoss<bf16>;

}  // namespace gyr
