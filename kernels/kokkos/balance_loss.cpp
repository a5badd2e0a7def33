// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the load-balancing loss and z-loss of MoE routers. kernels/ops/balance_loss.hpp has the formulas.
#include "kernels/ops/balance_loss.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/routing_math.hpp"

namespace gyr::backend {

template <class A>
void add_choices(Device& dev, Tensor2<const std::int32_t> chosen, Tensor1<A> n) {
  const Index slots = chosen.span();
  for_rows(
      dev, "add_choices", 1, KOKKOS_LAMBDA(const Index) {
        for (Index s = 0; s < slots; ++s) n(chosen.data()[s]) += A(1);
      });
}

template <class A>
void add_balance_gradient(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor1<const A> lse, Tensor1<const A> n, double balance,
                          double z, Tensor2<A> dlogits) {
  const Index experts = scores.extent(1);
  for_rows(
      dev, "balance_gradient", scores.extent(0), KOKKOS_LAMBDA(const Index r) {
        const A* const s = &scores(r, 0);
        A* const d = &dlogits(r, 0);
        balance_row<A>(
            rule, experts, A(balance), lse.data() ? A(2 * z) * lse(r) : A(0), [=](Index e) { return s[e]; }, [=](Index e) { return n(e); },
            [=](Index e, A x) { d[e] += x; });
      });
}

GYR_ALL_BALANCE

}  // namespace gyr::backend
