// SPDX-License-Identifier: BSD-3-Clause
// Relative positions as T5 has them (Raffel et al., "Exploring the Limits of Transfer Learning", 2020): distances from a query to a key fall into
// buckets, near ones each into its own, farther ones into ever wider ones, and each head learns a number for each bucket that its scores are added.
//   b(head, distance) = table(bucket(distance), head),   dtable(bucket, head) += sum of db(head, distance) over the distances of the bucket
#pragma once

#include <array>

#include "kernels/device/device.hpp"

namespace gyr {

struct DistanceBuckets {
  static constexpr Index most = 256;
  Index count = 0;                              // of all
  bool both_ways = false;                       // half of them for keys ahead of the query; otherwise such keys count as near as the query's own
  Index of_one_way = 0;                         // count, or half of it
  std::array<std::int32_t, most> nearest = {};  // of those of one way: the least distance in each, rising; from 0

  // Distances from max_distance on share the last bucket; half of one way's buckets hold one distance each. 2 <= count <= most.
  DistanceBuckets(Index count, Index max_distance, bool both_ways);
  DistanceBuckets() = default;

  GYR_FUNCTION Index of(Index distance) const {
    const Index apart = distance < 0 ? -distance : (both_ways ? distance : 0);
    Index bucket = of_one_way - 1;
    while (Index(nearest[bucket]) > apart) --bucket;
    return bucket + (both_ways && distance > 0 ? of_one_way : 0);
  }
};

// Column zero + distance of `bias`.
template <class A>
void distance_bias(Device&, const DistanceBuckets&, Tensor2<const A> table /*(count,H)*/, Index zero, Tensor2<A> bias /*(H,distances)*/);
template <class A>
void distance_bias_backward(Device&, const DistanceBuckets&, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable /*+=*/);

}  // namespace gyr
