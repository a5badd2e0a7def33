// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of the AdamW update. kernels/ops/adamw.hpp has the formula.
#include "kernels/ops/adamw.hpp"
#include "kernels/base/instances.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void adamw(Device& dev, const AdamW& rule, Tensor1<const Acc<T>> step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v,
           Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const AdamWUpdate<A> stays(rule);
  const A* const now = step.data();
  const A* const from = g.data();
  A *const first = m.data(), *const second = v.data();
  T* const to = w.data();
  A* const exact = master.data();
  for_teams(
      "adamw", dev, ceil_div(n, strip), KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index begin = s * strip, count = least(strip, n - begin);
        const AdamWUpdate<A> update = stays.in(now);
        if constexpr (std::is_same_v<T, A>) {
          if (!exact) {
            each(team, count, [=, at = begin](Index i) { to[at + i] = update(from[at + i], first[at + i], second[at + i], to[at + i]); });
            return;
          }
        }
        each(team, count, [=, at = begin](Index i) {
          exact[at + i] = update(from[at + i], first[at + i], second[at + i], exact[at + i]);
          to[at + i] = T(exact[at + i]);
        });
      });
}

GYR_SCALARS(GYR_ADAMW)

}  // namespace gyr::backend
