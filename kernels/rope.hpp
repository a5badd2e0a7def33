// SPDX-License-Identifier: BSD-3-Clause
// Rotary position embedding, rotate-half layout: u' = u cos + (-u2 ; u1) sin, angle = position theta^(-2j/E).
//   R rows, P positions, E head_dim, j < E/2
#pragma once

#include <cmath>

#include "kernels/device.hpp"

namespace gyr {

// How frequencies f = theta^(-2j/E) are lowered for texts longer than those that a model was first trained on, as Hugging Face's rope_type says:
//   linear   f / factor
//   llama3   f / factor where a turn takes more than original_positions / low_freq_factor tokens, f where it takes fewer than original_positions /
//            high_freq_factor, and between these from one to the other as the turns within original_positions grow (Llama 3.1)
struct RopeScaling {
  enum Type { none, linear, llama3 } type = none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  Index original_positions = 8192;

  auto operator<=>(const RopeScaling&) const = default;
};

// The frequency of the j-th pair of `half`, in the arithmetic of A, as Hugging Face has it.
template <class A>
GYR_FUNCTION A rope_frequency(A theta, const RopeScaling& scaling, Index j, Index half) {
  const A f = A(1) / std::pow(theta, A(2 * j) / A(2 * half));
  if (scaling.type == RopeScaling::none) return f;
  const A low = f / A(scaling.factor);
  if (scaling.type == RopeScaling::linear) return low;
  const A first = A(scaling.low_freq_factor), last = A(scaling.high_freq_factor);
  const A turns = A(scaling.original_positions) / (A(2 * M_PI) / f);
  if (turns < first) return low;
  if (turns > last) return f;
  const A share = (turns - first) / (last - first);
  return (A(1) - share) * low + share * f;
}

// cos and sin of the positions 0 to P - 1, in Acc<T> throughout (float angles for float and bf16, as Hugging Face has them).
template <class A>
struct Rotation {
  Tensor2<A> cosine, sine;  // (P,E/2)
};
template <class A>
void rope_table(Device&, double rope_theta, const RopeScaling&, const Rotation<A>&);

enum class Rotate { forward, backward };  // backward rotates by -angle: the transpose

// y = scale * x, with the first E channels of each head turned by its row's position (E is the table's; a head may have more, GPT-NeoX's partial
// rotary positions); S and T may differ, x and y may be the same memory where they do not.
template <class S, class T>
void rope(Device&, Rotate, Index num_heads, double scale, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions /*(R)*/,
          Matrix<const S> x /*(R,heads width)*/, Matrix<T> y);

}  // namespace gyr
