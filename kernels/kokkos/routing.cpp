// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of MoE routing. kernels/ops/routing.hpp has the formulas.
#include "kernels/ops/routing_math.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/routing.hpp"

namespace gyr::backend {

template <class A>
void route(Device& dev, const Routing& rule, Tensor1<const A> bias, Tensor2<A> scores, Tensor2<std::int32_t> chosen, Tensor2<A> weights,
           Tensor1<A> lse) {
  const Index experts = scores.extent(1);
  for_rows(
      dev, "route", scores.extent(0), KOKKOS_LAMBDA(const Index r) {
        A* const s = &scores(r, 0);
        std::int32_t* const c = &chosen(r, 0);
        A* const w = &weights(r, 0);
        const A sum = score_row<A>(
            rule, experts, [=](Index e) { return s[e]; }, [=](Index e, A x) { s[e] = x; });
        if (lse.data()) lse(r) = sum;
        choose_row<A>(
            rule, experts, [=](Index e) { return bias.data() ? s[e] + bias(e) : s[e]; }, [=](Index k, Index e) { c[k] = std::int32_t(e); });
        weigh_row<A>(
            rule, [=](Index k) { return s[c[k]]; }, [=](Index k, A x) { w[k] = x; });
      });
}

template <class A>
void route_backward(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits) {
  const Index experts = scores.extent(1);
  for_rows(
      dev, "route_backward", scores.extent(0), KOKKOS_LAMBDA(const Index r) {
        const A *const s = &scores(r, 0), *const dw = &dweights(r, 0);
        const std::int32_t* const c = &chosen(r, 0);
        A* const d = &dlogits(r, 0);
        const auto score = [=](Index k) { return s[c[k]]; };
        const auto dweight = [=](Index k) { return dw[k]; };
        const A other_terms = route_row_backward<A>(rule, score, dweight, [](Index, A) {});
        for (Index e = 0; e < experts; ++e) d[e] = other_terms * s[e];
        route_row_backward<A>(rule, score, dweight, [=](Index k, A x) { d[c[k]] = x; });
      });
}

GYR_ALL_ROUTING

}  // namespace gyr::backend
