// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/sum.hpp"

namespace gyr {

void add_in_order(Device& dev, Tensor1<const double> x, Tensor1<double> sum) {
  if (const auto run = dev.launch("add_in_order", 0, double(sizeof(double)) * double(x.extent(0)))) backend::add_in_order(dev, x, sum);
}

template <class A>
void add_sum_of_squares(Device& dev, Tensor1<const A> x, Tensor1<double> to) {
  const Index n = x.extent(0);
  Scope scope(dev.scratch);
  Tensor1<double> total;
  {
    const auto run = dev.launch("sum_of_squares", 2.0 * n, double(sizeof(A)) * n);
    total = backend::sum_of_squares<A>(dev, x);
  }
  add_in_order(dev, total, to);
}

template void add_sum_of_squares<double>(Device&, Tensor1<const double>, Tensor1<double>);
template void add_sum_of_squares<float>(Device&, Tensor1<const float>, Tensor1<double>);
template void add_sum_of_squares<bf16>(Device&, Tensor1<const bf16>, Tensor1<double>);

}  // namespace gyr
