// SPDX-License-Identifier: BSD-3-Clause
#include "modules/residual.hpp"

namespace gyr {

template <class T>
Tensor2<T> Residual<T>::forward(Pass<T>& a, Tensor2<const T> x) {
  const auto h = norm_.forward(a, x);
  auto y = a.saved.template push<Tensor2<T>>("y", x.extent(0), x.extent(1));
  for (auto& branch : branches_) branch->forward(a, h, branch == branches_.front() ? Add::no : Add::yes, y);
  a.tensor.whole().all_reduce(a.dev, flat(y));
  gyr::add<T>(a.dev, flat(x), flat(y));
  return y;
}

template <class T>
void Residual<T>::backward(Pass<T>& a, Tensor2<T> dx) {
  Scope scope(a.dev.scratch);
  auto dh = a.dev.scratch.template tensor<T>(dx.extent(0), dx.extent(1));
  for (auto branch = branches_.rbegin(); branch != branches_.rend(); ++branch)
    (*branch)->backward(a, dx, branch == branches_.rbegin() ? Add::no : Add::yes, dh);
  a.tensor.whole().all_reduce(a.dev, flat(dh));
  a.saved.template pop<Tensor2<T>>("y");
  norm_.backward(a, dh, Add::yes, dx);
}

template class Residual<double>;
template class Residual<float>;
template class Residual<bf16>;

}  // namespace gyr
