// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernel of weight updates by element. kernels/ops/updates/weight_update.hpp has the formulas.
#include "kernels/ops/updates/weight_update.hpp"
#include "kernels/base/instances.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T, class Rule>
void update_weights(Device& dev, const Rule& rule, Tensor1<const Acc<T>> values, Tensor1<const Acc<T>> g, const UpdateStates<Acc<T>, Rule>& states,
                    Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  using Element = typename Rule::template Element<A>;
  struct Pointers {
    A* of[Rule::states];
  } kept;
  for (int k = 0; k < Rule::states; ++k) kept.of[k] = states[std::size_t(k)].data();
  const Index n = w.extent(0);
  const Element stays(rule);
  const A* const now = values.data();
  const A* const from = g.data();
  T* const to = w.data();
  A* const exact = master.data();
  for_teams(
      Rule::name, dev, ceil_div(n, strip), KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index begin = s * strip, count = least(strip, n - begin);
        Element step = stays;
        step.set(now);
        const auto update = [=, element = step](Index i, A weight) {
          A state[Rule::states];
          for (int k = 0; k < Rule::states; ++k) state[k] = kept.of[k][i];
          const A updated = element(from[i], state, weight);
          for (int k = 0; k < Rule::states; ++k) kept.of[k][i] = state[k];
          return updated;
        };
        if constexpr (std::is_same_v<T, A>) {
          if (!exact) {
            each(team, count, [=, at = begin](Index i) { to[at + i] = update(at + i, to[at + i]); });
            return;
          }
        }
        each(team, count, [=, at = begin](Index i) {
          exact[at + i] = update(at + i, exact[at + i]);
          to[at + i] = T(exact[at + i]);
        });
      });
}

GYR_ALL_UPDATES

}  // namespace gyr::backend
