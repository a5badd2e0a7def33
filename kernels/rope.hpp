// SPDX-License-Identifier: BSD-3-Clause
// Rotary position embedding, rotate-half layout: u' = u cos + (-u2 ; u1) sin, angle = position theta^(-2j/E).
//   R rows, E head_dim, j < E/2
#pragma once

#include "kernels/device.hpp"

namespace gyr {

// cos and sin of every row's position, in Acc<T> throughout (float angles for float and bf16, as Hugging Face has them).
template <class A>
void rope_table(Device&, Tensor1<const std::int32_t> positions /*(R)*/, double rope_theta, Tensor2<A> cosine /*(R,E/2)*/, Tensor2<A> sine);

enum class Turn { forward, backward };  // backward rotates by -angle: the transpose

// y = scale * turned x, head by head; S and T may differ, x and y may be the same memory where they do not.
template <class S, class T>
void rope(Device&, Turn, Index num_heads, double scale, Tensor2<const Acc<T>> cosine, Tensor2<const Acc<T>> sine, Matrix<const S> x /*(R,heads E)*/,
          Matrix<T> y);

}  // namespace gyr
