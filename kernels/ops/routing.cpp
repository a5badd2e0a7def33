// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/routing.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

template <class A>
void check(const Routing& rule, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> weights) {
  const Index rows = scores.extent(0), experts = scores.extent(1);
  for (const auto& [extent_0, extent_1] : {std::pair{chosen.extent(0), chosen.extent(1)}, {weights.extent(0), weights.extent(1)}})
    ensure(Index(extent_0) == rows && Index(extent_1) == rule.top_k, "routing: scores ({},{}) with top_k {} do not fit choices or weights ({},{})",
           rows, experts, rule.top_k, extent_0, extent_1);
  ensure(rule.groups > 0 && experts % rule.groups == 0 && rule.top_groups > 0 && rule.top_groups <= rule.groups && rule.top_k > 0 &&
             rule.top_k <= experts / rule.groups * rule.top_groups,
         "routing: cannot choose {} of {} experts from {} of {} groups", rule.top_k, experts, rule.top_groups, rule.groups);
}

}  // namespace

template <class A>
void route(Device& dev, const Routing& rule, Tensor1<const A> bias, Tensor2<A> scores, Tensor2<std::int32_t> chosen, Tensor2<A> weights,
           Tensor1<A> lse) {
  const double rows = double(scores.extent(0)), experts = double(scores.extent(1)), k = double(rule.top_k);
  check<A>(rule, scores, chosen, weights);
  ensure(!bias.data() || bias.extent(0) == scores.extent(1), "routing: {} experts but {} bias values", scores.extent(1), bias.extent(0));
  ensure(!lse.data() || lse.extent(0) == scores.extent(0), "routing: {} log-sum-exps for {} rows", lse.extent(0), scores.extent(0));
  if (const auto run = dev.launch("route", rows * (4 * experts + 2 * k), rows * (2 * sizeof(A) * experts + (4 + sizeof(A)) * k)))
    backend::route<A>(dev, rule, bias, scores, chosen, weights, lse);
}

template <class A>
void route_backward(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits) {
  const double rows = double(scores.extent(0)), experts = double(scores.extent(1)), k = double(rule.top_k);
  check<A>(rule, scores, chosen, dweights);
  check<A>(rule, dlogits, chosen, dweights);
  if (const auto run = dev.launch("route_backward", rows * (experts + 8 * k), rows * (2 * sizeof(A) * experts + (4 + sizeof(A)) * k)))
    backend::route_backward<A>(dev, rule, scores, chosen, dweights, dlogits);
}

GYR_ALL_ROUTING

}  // namespace gyr
