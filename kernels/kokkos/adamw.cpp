// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/instances.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void adamw(Device& dev, const AdamW& step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const AdamWUpdate<A> update(step);
  const A* const from = g.data();
  A *const first = m.data(), *const second = v.data();
  T* const to = w.data();
  if constexpr (std::is_same_v<T, A>) {
    if (!master.data()) {
      for_flat(
          "adamw", dev, n, KOKKOS_LAMBDA(Index i) { to[i] = update(from[i], first[i], second[i], to[i]); });
      return;
    }
  }
  A* const exact = master.data();
  for_flat(
      "adamw", dev, n, KOKKOS_LAMBDA(Index i) {
        exact[i] = update(from[i], first[i], second[i], exact[i]);
        to[i] = T(exact[i]);
      });
}

GYR_SCALARS(GYR_ADAMW)

}  // namespace gyr::backend
