// SPDX-License-Identifier: BSD-3-Clause
#include "modules/residual.hpp"

namespace gyr {

template <class T>
Tensor2<T> Residual<T>::forward(Pass& a, Frame& frame, Tensor2<const T> x) {
  const auto h = norm_.forward(a, frame, x);
  const auto y = frame.put(output, x.extent(0), x.extent(1));
  for (std::size_t i = 0; i < branches_.size(); ++i) branches_[i]->forward(a, frame.nested(int(i), "branch"), h, i == 0 ? Add::no : Add::yes, y);
  a.tensor.whole().all_reduce(a.dev, flat(y));
  gyr::add<T>(a.dev, flat(x), flat(y));
  return y;
}

template <class T>
void Residual<T>::backward(Pass& a, Frame& frame, Tensor2<T> dx) {
  Scope scope(a.dev.scratch);
  const auto dh = a.scratch<T>("gradient of normed", Index(dx.extent(0)), Index(dx.extent(1)));
  for (std::size_t i = branches_.size(); i-- > 0;) {
    branches_[i]->backward(a, frame.nested(int(i)), dx, i + 1 == branches_.size() ? Add::no : Add::yes, dh);
    frame.nested(int(i)).release(Phase::weight_gradients);
  }
  a.tensor.whole().all_reduce(a.dev, flat(dh));
  norm_.backward(a, frame, dh, Add::yes, dx);
  frame.release(Phase::weight_gradients);
}

template class Residual<double>;
template class Residual<float>;
template class Residual<bf16>;

}  // namespace gyr
