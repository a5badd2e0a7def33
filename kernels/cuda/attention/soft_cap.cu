// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of the logit soft cap, y = cap tanh(x / cap).
#include "kernels/ops/soft_cap.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A, int N>
GYR_KERNEL soft_cap_kernel(SoftCap<A> cap, Global<A> x) {
  each_row(x.rows(), [&](Index r) {
    each_column<N>(x.columns(), [&](Index c) {
      auto v = x.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) v.at[i] = cap.at(v.at[i]);
      x.template store_pack<N>(r, c, v);
    });
  });
}

}  // namespace

template <class A>
void soft_cap(Device& dev, double cap, Tensor2<A> x) {
  const Global<A> all(x);
  with_packs<A>([&](auto n) { launch(dev, "soft_cap", grid_of_rows(all), soft_cap_kernel<A, n()>, SoftCap<A>(cap), all); }, all);
}

GYR_SOFT_CAP(double)
GYR_SOFT_CAP(float)

}  // namespace gyr::backend
