// SPDX-License-Identifier: BSD-3-Clause
#include "modules/objectives/scalar_head.hpp"

#include "modules/pass/stream.hpp"

namespace gyr {

template <class T>
void ScalarHead<T>::score(Pass& a, Tensor2<T> kept, const Labels& labels, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* scores) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "head: rows x hidden");
  AllRows<T> all(a, "normed, all rows", kept);
  const Tensor2<T> h = all.gather();
  const Tensor1<A> y = values_of(a, h);
  const bool trains = scale.extent(0) > 0;
  const auto dy = a.scratch<A>("gradient of values", trains ? Index(h.extent(0)) : Index(0));
  loss_of(a, y, labels, scale, sum, dy, scores);
  if (!trains) return;
  values_backward(a, dy, h);
  all.reduce();
}

template <class T>
auto ScalarHead<T>::values_of(Pass& a, Tensor2<const T> h) -> Tensor1<A> {
  const auto y = a.scratch<A>("values of rows", Index(h.extent(0)));
  if (this->valid() > 0) this->logits_of(a, h, column(y));
  else fill<A>(a.dev, y, 0);
  a.tensor.full().all_reduce(a.dev, y);
  return y;
}

// h becomes its partial gradient, which is 0 on ranks that do not hold w.
template <class T>
void ScalarHead<T>::values_backward(Pass& a, Tensor1<const A> dy, Tensor2<T> h) {
  if (this->valid() == 0) return fill<T>(a.dev, flat(h), 0);
  Scope scope(a.dev.scratch);
  const auto here = a.scratch<T>("gradient of values on this rank", Index(dy.extent(0)), Index(1));
  convert<A, T>(a.dev, column(dy), here);
  weights_backward<T>(a.dev, {&this->w_}, here, h);
  linear_backward_input<T>(a.dev, here, this->w_.template matrix<const T>(), h);
}

template class ScalarHead<double>;
template class ScalarHead<float>;
template class ScalarHead<bf16>;

}  // namespace gyr
