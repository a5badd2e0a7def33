// SPDX-License-Identifier: BSD-3-Clause
// Auxiliary losses of a mixture-of-experts router for an even load of its experts. n_e of a sequence's T tokens are sent to expert e. s are the
// scores of its tokens, s' = s / (sum of a token's s), and l their logits.
//   balance: E / (top_k T) sum over e of n_e mean over tokens of s'_e     (1 for an even load; DeepSeek-AI, 2024, per sequence)
//   z:       mean over tokens of (log sum over e of exp(l_e))^2           (z-loss; Zoph et al., "ST-MoE", 2022)
// n has no gradient. The rows of a call are tokens of one sequence.
#pragma once

#include "kernels/ops/routing.hpp"

namespace gyr {

// n_e += number of times that expert e is chosen.
template <class A>
void add_choices(Device&, Tensor2<const std::int32_t> chosen /*(R,K)*/, Tensor1<A> n /*(E)*/);

// Adds the gradient of both losses, with c = balance n:
//   softmax: dl_e += s_e (c_e - <c, s>),   sigmoid: dl_e += s'_e (1 - s_e) (c_e - <c, s'>);   and   dl_e += 2 z lse s_e
template <class A>
void add_balance_gradient(Device&, const Routing&, Tensor2<const A> scores /*(R,E)*/, Tensor1<const A> lse /*(R) log-sum-exp, or empty*/,
                          Tensor1<const A> n, double balance, double z, Tensor2<A> dlogits);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void add_choices(Device&, Tensor2<const std::int32_t> chosen, Tensor1<A> n);
template <class A>
void add_balance_gradient(Device&, const Routing&, Tensor2<const A> scores, Tensor1<const A> lse, Tensor1<const A> n, double balance, double z,
                          Tensor2<A> dlogits);

}  // namespace backend

}  // namespace gyr
