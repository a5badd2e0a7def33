// SPDX-License-Identifier: BSD-3-Clause
// Router of a mixture of experts: selects the experts of each row and their weights. With the logits l of a row:
//   s_e = softmax(l)_e or sigmoid(l_e);   chosen: the top_k experts with the largest s_e + b_e;   w_k = scale s_k / (sum over chosen of s + 1e-20)
// The bias b affects only the choice. Ties are broken in the order of the experts, so that the choice is a function of
// the scores. Without `normalize`, w_k = scale s_k. Groups are consecutive experts in equal numbers. With groups,
// experts are chosen only from the top_groups groups with the largest sum of their two largest s + b (DeepSeek-AI,
// "DeepSeek-V3 Technical Report", 2024).
//   R rows, E experts, K top_k
#pragma once

#include <cstdint>

#include "kernels/device/device.hpp"

namespace gyr {

struct Routing {
  enum Score { softmax, sigmoid } score = softmax;
  Index top_k = 2, groups = 1, top_groups = 1;
  bool normalize = true;
  double scale = 1;
};

// scores: logits on entry, scores on return. For a row with NaN scores, experts are chosen nevertheless, none of them
// twice.
template <class A>
void route(Device&, const Routing&, Tensor1<const A> bias /*(E) or empty*/, Tensor2<A> scores /*(R,E)*/, Tensor2<std::int32_t> chosen /*(R,K)*/,
           Tensor2<A> weights /*(R,K)*/, Tensor1<A> lse /*(R) or empty: log sum over e of exp(l_e) for softmax, else 0*/);

// With t the sum of s over the chosen experts:   ds_k = scale (dw_k - sum_j dw_j s_j / t) / t, or scale dw_k without
// `normalize`;   ds = 0 if not chosen
//   softmax: dl_e = s_e (ds_e - sum_j ds_j s_j),   sigmoid: dl_e = ds_e s_e (1 - s_e)
template <class A>
void route_backward(Device&, const Routing&, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits /*(R,E)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void route(Device&, const Routing&, Tensor1<const A> bias, Tensor2<A> scores, Tensor2<std::int32_t> chosen, Tensor2<A> weights, Tensor1<A> lse);
template <class A>
void route_backward(Device&, const Routing&, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits);

}  // namespace backend

}  // namespace gyr
