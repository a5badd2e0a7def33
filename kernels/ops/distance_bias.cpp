// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/distance_bias.hpp"

#include <cmath>

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

// Computed in single precision, because the rounding decides at the boundaries of buckets.
Index far_bucket(Index distance, Index exact, Index max_distance, Index count) {
  const float growth = float(std::log(double(max_distance) / double(exact)));
  return exact + Index(std::log(float(distance) / float(exact)) / growth * float(count - exact));
}

}  // namespace

DistanceBuckets::DistanceBuckets(Index count, Index max_distance, bool both_ways)
    : count(count), both_ways(both_ways), of_one_way(both_ways ? count / 2 : count) {
  const Index exact = of_one_way / 2;
  ensure(count <= most && exact >= 1 && (!both_ways || count % 2 == 0) && max_distance > exact,
         "distance bias: {} buckets do not fit distances up to {}", count, max_distance);
  for (Index b = 0; b <= exact; ++b) nearest[b] = std::int32_t(b);
  Index distance = exact;
  for (Index b = exact + 1; b < of_one_way; ++b) {
    while (distance < max_distance && far_bucket(distance, exact, max_distance, of_one_way) < b) ++distance;
    nearest[b] = std::int32_t(distance);
  }
}

template <class A>
void distance_bias(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> table, Index zero, Tensor2<A> bias) {
  ensure(Index(table.extent(0)) == buckets.count && table.extent(1) == bias.extent(0),
         "distance bias: a table ({},{}) does not fit {} buckets and {} heads", table.extent(0), table.extent(1), buckets.count, bias.extent(0));
  const double n = double(bias.extent(0)) * double(bias.extent(1));
  if (const auto run = dev.launch("distance_bias", 0, sizeof(A) * n)) backend::distance_bias<A>(dev, buckets, table, zero, bias);
}

template <class A>
void distance_bias_backward(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable) {
  ensure(Index(dtable.extent(0)) == buckets.count && dtable.extent(1) == dbias.extent(0),
         "distance bias: a table ({},{}) does not fit {} buckets and {} heads", dtable.extent(0), dtable.extent(1), buckets.count, dbias.extent(0));
  const double n = double(dbias.extent(0)) * double(dbias.extent(1));
  if (const auto run = dev.launch("distance_bias_backward", n, sizeof(A) * n)) backend::distance_bias_backward<A>(dev, buckets, dbias, zero, dtable);
}

GYR_DISTANCE_BIAS(double)
GYR_DISTANCE_BIAS(float)

}  // namespace gyr
