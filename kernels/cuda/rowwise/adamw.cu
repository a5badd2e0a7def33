// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of the AdamW update. kernels/ops/adamw.hpp has the formula.
#include "kernels/ops/adamw.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

// master: master weight, of which w receives a rounded copy. If there is no separate master weight, `master` is the
// weight itself and w is empty.
template <class T, int N>
GYR_KERNEL adamw_kernel(AdamWUpdate<Acc<T>> stays, Global<const Acc<T>> step, Global<const Acc<T>> g, Global<Acc<T>> m, Global<Acc<T>> v,
                        Global<Acc<T>> master, Global<T> w) {
  const AdamWUpdate<Acc<T>> update = stays.in(step.template load_pack<4>(0, 0).at);
  each_pack<N>(master, [&](Index r, Index c) {
    const auto gradient = g.template load_pack<N>(r, c);
    auto first = m.template load_pack<N>(r, c), second = v.template load_pack<N>(r, c), exact = master.template load_pack<N>(r, c);
    Pack<T, N> narrow;
    for (int i = 0; i < N; ++i) {
      exact.at[i] = update(gradient.at[i], first.at[i], second.at[i], exact.at[i]);
      narrow.at[i] = T(exact.at[i]);
    }
    m.template store_pack<N>(r, c, first);
    v.template store_pack<N>(r, c, second);
    master.template store_pack<N>(r, c, exact);
    if (w) w.template store_pack<N>(r, c, narrow);
  });
}

}  // namespace

template <class T>
void adamw(Device& dev, const AdamW& rule, Tensor1<const Acc<T>> step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v,
           Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  Global<A> exact(master);
  Global<T> narrow(w);
  if constexpr (std::is_same_v<T, A>)
    if (!master.data()) exact = narrow, narrow = {};
  const Global<const A> gradient(g);
  const Global<A> first(m), second(v);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "adamw", grid_of<n>(exact), adamw_kernel<T, n>, AdamWUpdate<A>(rule), step, gradient, first, second, exact, narrow);
      },
      gradient, first, second, exact, narrow);
}

GYR_SCALARS(GYR_ADAMW)

}  // namespace gyr::backend
