// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/value_loss.hpp"

#include "kernels/ops/policy/value_loss.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr {

template <class T>
void ValueLoss<T>::loss_of(Pass& a, Tensor1<const A> y, const Labels& labels, Tensor1<const double> scales, Tensor1<double> sums, Tensor1<A> dy,
                           ObjectiveScores* scores) {
  Scope scope(a.dev.scratch);
  const Index n = y.extent(0);
  if (scores && !a.dev.dry_run())
    for (const A value : to_host(a.dev, y)) scores->rows.push_back({double(value), 0});
  const auto wide = a.scratch<double>("values of rows, wide", n), losses = a.scratch<double>("losses of rows", n),
             slopes = a.scratch<double>("slopes of rows", n), clipped = a.scratch<double>("clipped rows", n);
  convert<A, double>(a.dev, column(y), column(wide));
  const NamedDeviceValues& values = labels.values;
  const ValueRows rows{wide, values.at(value_field::value), values.at(value_field::returns), values.at(value_field::weight)};
  value_loss(a.dev, rows, clip_, losses, slopes, clipped);
  add_in_order(a.dev, losses, gyr::rows(sums, 0, 1));
  if (dy.extent(0) == 0) return;
  add_in_order(a.dev, clipped, gyr::rows(sums, 1, 1));
  bias_scale<double>(a.dev, {}, gyr::rows(scales, 0, 1), column(slopes));
  convert<double, A>(a.dev, column(slopes), column(dy));
}

template class ValueLoss<double>;
template class ValueLoss<float>;
template class ValueLoss<bf16>;

}  // namespace gyr
