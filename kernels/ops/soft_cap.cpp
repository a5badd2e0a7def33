// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/soft_cap.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class A>
void soft_cap(Device& dev, double cap, Tensor2<A> x) {
  const double n = double(x.extent(0)) * double(x.extent(1));
  if (const auto run = dev.launch("soft_cap", 3 * n, 2.0 * sizeof(A) * n)) backend::soft_cap<A>(dev, cap, x);
}

GYR_SOFT_CAP(double)
GYR_SOFT_CAP(float)

}  // namespace gyr
