// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/sum.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr {

template <class A>
void add_sum_of_squares(Device& dev, Tensor1<const A> x, Tensor1<double> to) {
  const Index n = x.extent(0), strips = ceil_div(n, strip);
  Scope scope(dev.scratch);
  const auto partial = dev.scratch.tensor<double>(strips);
  const auto total = dev.scratch.tensor<double>(1);
  if (const auto run = dev.launch("sum_of_squares", 2.0 * n, double(sizeof(A)) * n)) {
    for_teams(
        "sum_of_squares", dev, strips, KOKKOS_LAMBDA(const Team& team, Index s) {
          const A* const from = x.data() + s * strip;
          const double squares = sum<double>(team, least(strip, n - s * strip), [=](Index i, double& t) { t += double(from[i]) * double(from[i]); });
          once(team, [&] { partial(s) = squares; });
        });
    for_teams(
        "sum_of_squares", dev, 1, KOKKOS_LAMBDA(const Team& team, Index) {
          once(team, [&] {
            double t = 0;
            for (Index s = 0; s < strips; ++s) t += partial(s);
            total(0) = t;
          });
        });
  }
  add_in_order(dev, total, to);
}

template void add_sum_of_squares<double>(Device&, Tensor1<const double>, Tensor1<double>);
template void add_sum_of_squares<float>(Device&, Tensor1<const float>, Tensor1<double>);
template void add_sum_of_squares<bf16>(Device&, Tensor1<const bf16>, Tensor1<double>);

}  // namespace gyr
