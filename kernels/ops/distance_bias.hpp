// SPDX-License-Identifier: BSD-3-Clause
// Relative-position bias of T5 (Raffel et al., "Exploring the Limits of Transfer Learning", 2020). Distances from a
// query to a key are grouped into buckets: near distances have one bucket each, farther ones share buckets of
// increasing width. Each head learns one value per bucket, which is added to its scores.
//   b(head, distance) = table(bucket(distance), head),   dtable(bucket, head) += sum of db(head, distance) over the distances of the bucket
#pragma once

#include <array>

#include "kernels/device/device.hpp"

namespace gyr {

struct DistanceBuckets {
  static constexpr Index most = 256;
  Index count = 0;                              // total number of buckets
  bool both_ways = false;                       // true: half of the buckets are for keys after the query; false: such keys count as distance 0
  Index of_one_way = 0;                         // buckets per direction: count, or half of it
  std::array<std::int32_t, most> nearest = {};  // smallest distance in each bucket of one direction, increasing from 0

  // Distances from max_distance on share the last bucket. Half of the buckets of one direction hold one distance each.
  // count is 2 to `most` (both_ways: even, at least 4), and max_distance exceeds the number of buckets with one
  // distance.
  DistanceBuckets(Index count, Index max_distance, bool both_ways);
  DistanceBuckets() = default;

  GYR_FUNCTION Index of(Index distance) const {
    const Index distance_to_key = distance < 0 ? -distance : (both_ways ? distance : 0);
    Index bucket = of_one_way - 1;
    while (Index(nearest[bucket]) > distance_to_key) --bucket;
    return bucket + (both_ways && distance > 0 ? of_one_way : 0);
  }
};

// Column zero + distance of `bias` holds the bias of that distance (key position minus query position).
template <class A>
void distance_bias(Device&, const DistanceBuckets&, Tensor2<const A> table /*(count,H)*/, Index zero, Tensor2<A> bias /*(H,distances)*/);
template <class A>
void distance_bias_backward(Device&, const DistanceBuckets&, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable /*+=*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void distance_bias(Device&, const DistanceBuckets&, Tensor2<const A> table, Index zero, Tensor2<A> bias);
template <class A>
void distance_bias_backward(Device&, const DistanceBuckets&, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable);

}  // namespace backend

}  // namespace gyr
