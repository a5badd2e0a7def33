// SPDX-License-Identifier: BSD-3-Clause
// Terms of a loss that keep a router's experts evenly used. With n_e of a sequence's T tokens sent to expert e, s the scores of its tokens,
// s' = s / (sum of a token's s), and l their logits,
//   balance: E / (top_k T) sum over e of n_e mean over tokens of s'_e     (1 where all is even; DeepSeek-AI, 2024, per sequence)
//   z:       mean over tokens of (log sum over e of exp(l_e))^2           (Zoph et al., "ST-MoE", 2022)
// n has no gradient. Rows here are some tokens of one sequence.
#pragma once

#include "kernels/ops/routing.hpp"

namespace gyr {

// n_e += how often expert e is chosen.
template <class A>
void add_choices(Device&, Tensor2<const std::int32_t> chosen /*(R,K)*/, Tensor1<A> n /*(E)*/);

// With c = balance n:   softmax: dl_e += s_e (c_e - <c, s>),   sigmoid: dl_e += s'_e (1 - s_e) (c_e - <c, s'>);   and   dl_e += 2 z lse s_e
template <class A>
void add_balance_gradient(Device&, const Routing&, Tensor2<const A> scores /*(R,E)*/, Tensor1<const A> lse /*(R) of softmax, or empty*/,
                          Tensor1<const A> n, double balance, double z, Tensor2<A> dlogits);

}  // namespace gyr
