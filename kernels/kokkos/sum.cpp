// SPDX-License-Identifier: BSD-3-Clause
// Sum of squares in double, in fixed strips and order, so that results are bitwise reproducible.
#include "kernels/ops/sum.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class A>
Tensor1<double> sum_of_squares(Device& dev, Tensor1<const A> x) {
  const Index n = x.extent(0), strips = ceil_div(n, strip);
  const auto partial = dev.scratch.tensor<double>(strips);
  const auto total = dev.scratch.tensor<double>(1);
  if (dev.dry_run()) return total;
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
  return total;
}

template Tensor1<double> sum_of_squares<double>(Device&, Tensor1<const double>);
template Tensor1<double> sum_of_squares<float>(Device&, Tensor1<const float>);
template Tensor1<double> sum_of_squares<bf16>(Device&, Tensor1<const bf16>);

}  // namespace gyr::backend
