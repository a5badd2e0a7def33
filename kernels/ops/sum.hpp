// SPDX-License-Identifier: BSD-3-Clause
// Sums that stay on the device, and copies of a few values to the host. For such a copy the host waits until the device
// has done all work enqueued before. On a GPU nothing runs meanwhile, so that a training step copies only once, at its
// end.
#pragma once

#include <vector>

#include "kernels/ops/elementwise.hpp"

namespace gyr {

// sum(0) += x(0) + x(1) + ..., from left to right.
void add_in_order(Device&, Tensor1<const double> x, Tensor1<double> sum /*(1)*/);
// sum(0) += sum of x(i)^2, in double, in fixed blocks and order: equal inputs give equal bits. NaN and infinity
// propagate.
template <class A>
void add_sum_of_squares(Device&, Tensor1<const A> x, Tensor1<double> sum /*(1)*/);

// Copies x to the host; returns zeros on a dry-run device. The device records each call like a kernel launch, under
// the name to_host_work.
inline constexpr const char* to_host_work = "to_host";
template <class V>
std::vector<std::remove_const_t<V>> to_host(Device& dev, Tensor1<V> x) {
  using Number = std::remove_const_t<V>;
  std::vector<Number> host(x.extent(0));
  if (const auto run = dev.launch(to_host_work, 0, double(sizeof(V)) * double(host.size())))
    dev.host_waits([&] { backend::copy_to_host(x.data(), host.data(), Index(x.span() * sizeof(V))); });
  return host;
}

template <class A>
double sum_of_squares(Device& dev, Tensor1<const A> x) {
  Scope scope(dev.scratch);
  const auto sum = dev.scratch.tensor<double>(1);
  fill<double>(dev, sum, 0);
  add_sum_of_squares<A>(dev, x, sum);
  return to_host(dev, sum)[0];
}

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

void add_in_order(Device&, Tensor1<const double> x, Tensor1<double> sum);
// Returns the sum as a tensor (1) in scratch memory that the function allocates.
template <class A>
Tensor1<double> sum_of_squares(Device&, Tensor1<const A> x);

}  // namespace backend

}  // namespace gyr
