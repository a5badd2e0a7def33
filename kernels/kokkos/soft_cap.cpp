// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of the logit soft cap, y = cap tanh(x / cap).
#include "kernels/ops/soft_cap.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class A>
void soft_cap(Device& dev, double cap, Tensor2<A> x) {
  const Index columns = x.extent(1);
  const SoftCap<A> capped(cap);
  for_teams(
      "soft_cap", dev, x.extent(0), KOKKOS_LAMBDA(const Team& team, Index r) {
        A* const row = x.data() + r * columns;
        each(team, columns, [=](Index c) { row[c] = capped.at(row[c]); });
      });
}

GYR_SOFT_CAP(double)
GYR_SOFT_CAP(float)

}  // namespace gyr::backend
