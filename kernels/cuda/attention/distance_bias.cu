// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the attention bias by distance buckets (T5's relative position bias), and of the gradient of its
// table.
#include "kernels/ops/distance_bias.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A>
GYR_KERNEL distance_bias_kernel(DistanceBuckets buckets, Global<const A> table, Index zero, Global<A> bias) {
  each_row(bias.rows(), [&](Index h) {
    each_column<1>(bias.columns(), [&](Index c) { bias.store(h, c, table.load(buckets.of(c - zero), h)); });
  });
}

// One warp per bucket and head. Its lanes stride over the distances.
template <class A>
GYR_KERNEL distance_bias_backward_kernel(DistanceBuckets buckets, Global<const A> dbias, Index zero, Global<A> dtable) {
  each_row(dtable.rows() * dtable.columns(), [&](Index task) {
    const Index bucket = task / dtable.columns(), h = task % dtable.columns();
    A sum = 0;
    for (Index c = lane(); c < dbias.columns(); c += warp_size)
      if (buckets.of(c - zero) == bucket) sum += dbias.load(h, c);
    sum = warp_sum(sum);
    if (lane() == 0) dtable.store(bucket, h, dtable.load(bucket, h) + sum);
  });
}

}  // namespace

template <class A>
void distance_bias(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> table, Index zero, Tensor2<A> bias) {
  const Global<A> all(bias);
  launch(dev, "distance_bias", grid_of_rows(all), distance_bias_kernel<A>, buckets, Global<const A>(table), zero, all);
}

template <class A>
void distance_bias_backward(Device& dev, const DistanceBuckets& buckets, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable) {
  const Grid grid{std::min(ceil_div(Index(dtable.extent(0)) * Index(dtable.extent(1)), usual_warps), most_blocks), usual_threads};
  launch(dev, "distance_bias_backward", grid, distance_bias_backward_kernel<A>, buckets, Global<const A>(dbias), zero, Global<A>(dtable));
}

GYR_DISTANCE_BIAS(double)
GYR_DISTANCE_BIAS(float)

}  // namespace gyr::backend
