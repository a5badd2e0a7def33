// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of MoE routing, with one thread per row. kernels/ops/routing.hpp has the formulas.
#include "kernels/ops/routing_math.hpp"

#include "kernels/ops/routing.hpp"
#include "kernels/cuda/experts/experts.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A>
GYR_KERNEL route_kernel(Routing rule, Global<const A> bias, Global<A> scores, Global<std::int32_t> chosen, Global<A> weights,
                        Global<A> lse) {
  const Index experts = scores.columns();
  each_row_of_thread(scores.rows(), [&](Index r) {
    const A sum = score_row<A>(
        rule, experts, [&](Index e) { return scores.load(r, e); }, [&](Index e, A x) { scores.store(r, e, x); });
    if (lse) lse.store(r, sum);
    choose_row<A>(
        rule, experts, [&](Index e) { return bias ? scores.load(r, e) + bias.load(e) : scores.load(r, e); },
        [&](Index k, Index e) { chosen.store(r, k, std::int32_t(e)); });
    weigh_row<A>(
        rule, [&](Index k) { return scores.load(r, chosen.load(r, k)); }, [&](Index k, A x) { weights.store(r, k, x); });
  });
}

template <class A>
GYR_KERNEL route_backward_kernel(Routing rule, Global<const A> scores, Global<const std::int32_t> chosen, Global<const A> dweights,
                                 Global<A> dlogits) {
  each_row_of_thread(scores.rows(), [&](Index r) {
    const auto score = [&](Index k) { return scores.load(r, chosen.load(r, k)); };
    const auto dweight = [&](Index k) { return dweights.load(r, k); };
    const A other_terms = route_row_backward<A>(rule, score, dweight, [](Index, A) {});
    for (Index e = 0; e < scores.columns(); ++e) dlogits.store(r, e, other_terms * scores.load(r, e));
    route_row_backward<A>(rule, score, dweight, [&](Index k, A x) { dlogits.store(r, chosen.load(r, k), x); });
  });
}

}  // namespace

template <class A>
void route(Device& dev, const Routing& rule, Tensor1<const A> bias, Tensor2<A> scores, Tensor2<std::int32_t> chosen, Tensor2<A> weights,
           Tensor1<A> lse) {
  launch(dev, "route", grid_of_threads(scores.extent(0)), route_kernel<A>, rule, bias, scores, chosen, weights, lse);
}

template <class A>
void route_backward(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits) {
  launch(dev, "route_backward", grid_of_threads(scores.extent(0)), route_backward_kernel<A>, rule, scores, chosen, dweights, dlogits);
}

GYR_ALL_ROUTING

}  // namespace gyr::backend
