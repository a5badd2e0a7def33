// SPDX-License-Identifier: BSD-3-Clause
#include "modules/layers/residual.hpp"

namespace gyr {

template <class T>
Tensor2<T> Residual<T>::forward(Pass& a, Frame& frame, Tensor2<T> x) {
  const Device::Purpose purpose(a.dev, "branches, forward: rows x hidden");
  if (reads_stream()) frame.refer(Keys::input, x);
  const auto sum = add_branches(a, frame, reads_stream() ? x : norm_->forward(a, frame, x), x);
  if (norm_of_sum_) return add_normed(a, frame, sum, x);
  return after_ ? norm_->forward(a, frame, sum) : sum;
}

// x is added to the norm output in place, which the backward does not need.
template <class T>
Tensor2<T> Residual<T>::add_normed(Pass& a, Frame& frame, Tensor2<T> sum, Tensor2<const T> x) {
  const auto y = norm_of_sum_->forward(a, frame_of_sum(frame), sum);
  if (norm_of_sum_->needs_norm_output(frame_of_sum(frame))) join(a, x, y);
  return y;
}

template <class T>
void Residual<T>::join(const Pass& a, Tensor2<const T> x, Tensor2<T> y) const {
  a.drop<T>(dropout(a), y, y);
  gyr::add<T>(a.dev, flat(x), flat(y));
}

template <class T>
Tensor2<T> Residual<T>::add_branches(Pass& a, Frame& frame, Tensor2<T> mine, Tensor2<const T> x) {
  const auto y = frame.put(Keys::output, x.extent(0), x.extent(1));
  Scope scope(a.dev.scratch);
  AllRows<T> h(a, "normed, all rows", mine), sum(a, "partial sums", y);
  const Tensor2<T> parts = frame.wants(Keys::output) ? sum.rows() : Tensor2<T>();
  for (std::size_t i = 0; i < branches_.size(); ++i) branches_[i]->forward(a, frame.nested(int(i), "branch"), h, i == 0 ? Add::no : Add::yes, parts);
  if (!parts.data()) return y;
  sum.reduce();
  if (!norm_of_sum_) join(a, x, y);
  return y;
}

template <class T>
Tensor2<T> Residual<T>::gradient_of_sum(Pass& a, Frame& frame, Tensor2<T> dy, Tensor2<T> spare) {
  if (after_) {
    norm_->backward(a, frame, dy, Add::no, spare);
    convert<T, T>(a.dev, Matrix<const T>(spare), dy);
  }
  if (const Dropout drop = dropout(a); drop.drops()) {
    const auto left = a.scratch<T>("gradient of the sum after dropout", Index(dy.extent(0)), Index(dy.extent(1)));
    a.drop<T>(drop, dy, left);
    dy = left;
  }
  if (!norm_of_sum_) return dy;
  const auto dsum = a.scratch<T>("gradient of the sum of branches", Index(dy.extent(0)), Index(dy.extent(1)));
  norm_of_sum_->backward(a, frame_of_sum(frame), dy, Add::no, dsum);
  return dsum;
}

// With tensor parallelism, the all-gather of the branch inputs overlaps the input-gradient GEMMs, and the reduction of
// input gradients overlaps the weight-gradient GEMMs. Without it there is nothing to overlap: the weight gradients of
// each branch are computed at once, and its activations are freed before the backward of the next branch.
template <class T>
void Residual<T>::backward(Pass& a, Frame& frame, Tensor2<T> dx, MatrixGradients when) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "branches, backward: rows x hidden");
  const bool now = when == MatrixGradients::now, hides = a.tensor.size() > 1;
  const auto dh = a.scratch<T>("gradient of the norm output", Index(dx.extent(0)), Index(dx.extent(1)));
  const Tensor2<T> dsum = gradient_of_sum(a, frame, dx, dh);
  const Tensor2<const T> dy = AllRows<T>(a, "gradient, all rows", dsum).gather();
  std::optional<AllRows<T>> h;
  Event coming = now ? h.emplace(a, "normed, all rows", read_by_branches(frame)).start_gather() : Event();
  const auto weights = [&](std::size_t i) { branches_[i]->backward_weights(a, frame.nested(int(i)), h->rows(), dy); };
  AllRows<T> total(a, "partial sums", dh);
  for (std::size_t i = branches_.size(); i-- > 0;) {
    branches_[i]->backward(a, frame.nested(int(i)), dy, i + 1 == branches_.size() ? Add::no : Add::yes, total.rows());
    frame.nested(int(i)).release(Phase::input_gradients);
    if (now && !hides) weights(i), frame.nested(int(i)).release(Phase::weight_gradients);
  }
  if (!now) convert<T, T>(a.dev, dy, frame.put(Keys::gradient, a.stream.rows, dx.extent(1)));
  Event sum = total.start_reduce();
  coming.device_wait(a.dev);
  for (std::size_t i = branches_.size(); now && hides && i-- > 0;) weights(i);
  sum.device_wait(a.dev);
  if (reads_stream()) gyr::add<T>(a.dev, flat(dh), flat(dx));
  else norm_->backward(a, frame, dh, Add::yes, dx);
  frame.release(now ? Phase::weight_gradients : Phase::input_gradients);
}

template <class T>
void Residual<T>::backward_weights(Pass& a, Frame& frame) {
  Scope scope(a.dev.scratch);
  const Device::Purpose purpose(a.dev, "branches, backward: rows x hidden");
  const Tensor2<const T> h = AllRows<T>(a, "normed, all rows", read_by_branches(frame)).gather(), dy = frame.get(Keys::gradient);
  for (std::size_t i = branches_.size(); i-- > 0;) branches_[i]->backward_weights(a, frame.nested(int(i)), h, dy);
  frame.release(Phase::weight_gradients);
}

template class Residual<double>;
template class Residual<float>;
template class Residual<bf16>;

}  // namespace gyr
