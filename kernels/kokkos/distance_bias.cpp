// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of T5's relative position bias. kernels/ops/distance_bias.hpp has the formulas.
#include "kernels/ops/distance_bias.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class A>
void distance_bias(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> table, Index zero, Tensor2<A> bias) {
  const Index columns = bias.extent(1);
  for_rows(
      dev, "distance_bias", bias.extent(0), KOKKOS_LAMBDA(const Index h) {
        for (Index c = 0; c < columns; ++c) bias(h, c) = table(buckets.of(c - zero), h);
      });
}

template <class A>
void distance_bias_backward(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable) {
  const Index columns = dbias.extent(1);
  for_rows(
      dev, "distance_bias_backward", dbias.extent(0), KOKKOS_LAMBDA(const Index h) {
        for (Index c = 0; c < columns; ++c) dtable(buckets.of(c - zero), h) += dbias(h, c);
      });
}

GYR_DISTANCE_BIAS(double)
GYR_DISTANCE_BIAS(float)

}  // namespace gyr::backend
