// SPDX-License-Identifier: BSD-3-Clause
// Sum from left to right. Unlike other kernels, this file is compiled without permission to reorder sums.
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr::backend {

// One thread is enough for a few hundred values.
void add_in_order(Device& dev, Tensor1<const double> x, Tensor1<double> sum) {
  const Index n = x.extent(0);
  for_teams(
      "add_in_order", dev, 1, KOKKOS_LAMBDA(const Team& team, Index) {
        once(team, [&] {
          double t = 0;
          for (Index i = 0; i < n; ++i) t += x(i);
          sum(0) += t;
        });
      });
}

}  // namespace gyr::backend
