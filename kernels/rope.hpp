// SPDX-License-Identifier: BSD-3-Clause
// Rotary position embedding, rotate-half layout: u' = u cos + (-u2 ; u1) sin, angle = position theta^(-2j/E).
//   R rows, P positions, E head_dim, j < E/2
#pragma once

#include "kernels/device.hpp"

namespace gyr {

// cos and sin of the positions 0 to P - 1, in Acc<T> throughout (float angles for float and bf16, as Hugging Face has them).
template <class A>
struct Rotation {
  Tensor2<A> cosine, sine;  // (P,E/2)
};
template <class A>
void rope_table(Device&, double rope_theta, const Rotation<A>&);

enum class Rotate { forward, backward };  // backward rotates by -angle: the transpose

// y = scale * x turned by its row's position, head by head; S and T may differ, x and y may be the same memory where they do not.
template <class S, class T>
void rope(Device&, Rotate, Index num_heads, double scale, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions /*(R)*/,
          Matrix<const S> x /*(R,heads E)*/, Matrix<T> y);

}  // namespace gyr
