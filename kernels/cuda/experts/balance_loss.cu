// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels for balancing experts: counts of chosen rows per expert, and gradients of the load-balancing loss and
// the router z-loss.
#include "kernels/ops/balance_loss.hpp"
#include "kernels/cuda/experts/experts.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/ops/routing_math.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A>
GYR_KERNEL add_choices_kernel(Global<const std::int32_t> chosen, Global<A> n) {
  each_row(n.columns(), [&](Index expert) {
    const int rows = count_slots(chosen, expert);
    if (lane() == 0) n.store(expert, n.load(expert) + A(rows));
  });
}

template <class A>
GYR_KERNEL balance_gradient_kernel(Routing rule, Global<const A> scores, Global<const A> lse, Global<const A> n, A balance, A z, Global<A> dlogits) {
  each_row_of_thread(scores.rows(), [&](Index r) {
    balance_row<A>(
        rule, scores.columns(), balance, lse ? A(2) * z * lse.load(r) : A(0), [&](Index e) { return scores.load(r, e); },
        [&](Index e) { return n.load(e); }, [&](Index e, A x) { dlogits.store(r, e, dlogits.load(r, e) + x); });
  });
}

}  // namespace

template <class A>
void add_choices(Device& dev, Tensor2<const std::int32_t> chosen, Tensor1<A> n) {
  launch(dev, "add_choices", grid_of_experts(n.extent(0)), add_choices_kernel<A>, flat(chosen), n);
}

template <class A>
void add_balance_gradient(Device& dev, const Routing& rule, Tensor2<const A> scores, Tensor1<const A> lse, Tensor1<const A> n, double balance, double z,
                          Tensor2<A> dlogits) {
  launch(dev, "balance_gradient", grid_of_threads(scores.extent(0)), balance_gradient_kernel<A>, rule, scores, lse, n, A(balance), A(z), dlogits);
}

GYR_ALL_BALANCE

}  // namespace gyr::backend
