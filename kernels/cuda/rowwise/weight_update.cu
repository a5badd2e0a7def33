// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernel of weight updates by element. kernels/ops/updates/weight_update.hpp has the formulas.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/updates/weight_update.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A, int States>
struct GlobalStates {
  Global<A> of[States];
};

// master: master weight, of which w receives a rounded copy. If there is no separate master weight, `master` is the
// weight itself and w is empty.
template <class T, int N, class Rule>
GYR_KERNEL update_kernel(typename Rule::template Element<Acc<T>> element, Global<const Acc<T>> values, Global<const Acc<T>> g,
                         GlobalStates<Acc<T>, Rule::states> states, Global<Acc<T>> master, Global<T> w) {
  using A = Acc<T>;
  const auto now = values.template load_pack<4>(0, 0);  // no rule by element has more
  element.set(now.at);
  each_pack<N>(master, [&](Index r, Index c) {
    const auto gradient = g.template load_pack<N>(r, c);
    Pack<A, N> kept[Rule::states];
    GYR_UNROLL
    for (int k = 0; k < Rule::states; ++k) kept[k] = states.of[k].template load_pack<N>(r, c);
    auto exact = master.template load_pack<N>(r, c);
    Pack<T, N> narrow;
    GYR_UNROLL
    for (int i = 0; i < N; ++i) {
      A state[Rule::states];
      GYR_UNROLL
      for (int k = 0; k < Rule::states; ++k) state[k] = kept[k].at[i];
      exact.at[i] = element(gradient.at[i], state, exact.at[i]);
      GYR_UNROLL
      for (int k = 0; k < Rule::states; ++k) kept[k].at[i] = state[k];
      narrow.at[i] = T(exact.at[i]);
    }
    GYR_UNROLL
    for (int k = 0; k < Rule::states; ++k) states.of[k].template store_pack<N>(r, c, kept[k]);
    master.template store_pack<N>(r, c, exact);
    if (w) w.template store_pack<N>(r, c, narrow);
  });
}

}  // namespace

template <class T, class Rule>
void update_weights(Device& dev, const Rule& rule, Tensor1<const Acc<T>> values, Tensor1<const Acc<T>> g, const UpdateStates<Acc<T>, Rule>& states,
                    Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  Global<A> exact(master);
  Global<T> narrow(w);
  if constexpr (std::is_same_v<T, A>)
    if (!master.data()) exact = narrow, narrow = {};
  const Global<const A> gradient(g);
  GlobalStates<A, Rule::states> kept;
  for (int k = 0; k < Rule::states; ++k) kept.of[k] = Global<A>(states[std::size_t(k)]);
  const typename Rule::template Element<A> element(rule);
  with_packs<A>(
      [&](auto n) { launch(dev, Rule::name, grid_of<n>(exact), update_kernel<T, n, Rule>, element, values, gradient, kept, exact, narrow); },
      gradient, kept.of[0], kept.of[Rule::states - 1], exact, narrow);
}

GYR_ALL_UPDATES

}  // namespace gyr::backend
