// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/balance_loss.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class A>
void add_choices(Device& dev, Tensor2<const std::int32_t> chosen, Tensor1<A> n) {
  if (const auto run = dev.launch("add_choices", double(chosen.span()), double(sizeof(std::int32_t) * chosen.span())))
    backend::add_choices<A>(dev, chosen, n);
}

template <class A>
void add_balance_gradient(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor1<const A> lse, Tensor1<const A> n, double balance,
                          double z, Tensor2<A> dlogits) {
  ensure(dlogits.extent(0) == scores.extent(0) && dlogits.extent(1) == scores.extent(1) && n.extent(0) == scores.extent(1) &&
             (!lse.data() || lse.extent(0) == scores.extent(0)),
         "balance gradient: scores ({},{}) do not fit {} counts, {} log-sum-exps and dlogits ({},{})", scores.extent(0), scores.extent(1),
         n.extent(0), lse.extent(0), dlogits.extent(0), dlogits.extent(1));
  ensure(!lse.data() || rule.score == Routing::softmax, "balance gradient: the router z-loss needs softmax scores");
  if (const auto run = dev.launch("balance_gradient", 8.0 * double(scores.span()), 3.0 * sizeof(A) * double(scores.span())))
    backend::add_balance_gradient<A>(dev, rule, scores, lse, n, balance, z, dlogits);
}

GYR_ALL_BALANCE

}  // namespace gyr
