// SPDX-License-Identifier: BSD-3-Clause
// Rotary position embedding, rotate-half layout: u' = u cos + (-u2 ; u1) sin, angle = position theta^(-2j/E).
//   R rows, P positions, E head_dim, j < E/2
#pragma once

#include <cmath>

#include "kernels/device/device.hpp"

namespace gyr {

// How frequencies f = theta^(-2j/E) are lowered for texts longer than those that a model was first trained on, as Hugging Face's rope_type says. With
// turns(f) = original_positions f / (2 pi), and a share of 0 where all is lowered and 1 where nothing is, f becomes share f + (1 - share) f / factor:
//   linear   share = 0
//   llama3   share rises with turns(f) from low_freq_factor to high_freq_factor (Llama 3.1)
//   yarn     share rises with j, from the pair that turns low_freq_factor times back to the one that turns high_freq_factor times, both rounded
//            outwards where `truncate`; and queries and keys are scaled by `attention_factor`, where that is 0 by 0.1 ln(factor) + 1 (Peng et al.,
//            "YaRN", 2023, who call the two beta_slow and beta_fast)
//   dynamic  f stays; of sequences of L > original_positions tokens theta grows by (factor L / original_positions - factor + 1)^(E / (E - 2)) (NTK).
//            L is the number of positions that there are angles of
struct RopeScaling {
  enum Type { none, linear, llama3, yarn, dynamic } type = none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  Index original_positions = 8192;
  double attention_factor = 0;
  bool truncate = true;

  auto operator<=>(const RopeScaling&) const = default;
};

// The frequencies of `half` pairs, for sequences of so many tokens.
class RopeFrequencies {
 public:
  RopeFrequencies(double theta, const RopeScaling& scaling, Index half, Index length);

  // Of pair j, in the arithmetic of A, as Hugging Face has it.
  template <class A>
  GYR_FUNCTION A at(Index j) const {
    const A f = A(1) / std::pow(A(theta_), A(2 * j) / A(2 * half_)), lowered = f / A(scaling_.factor);
    if (scaling_.type == RopeScaling::none || scaling_.type == RopeScaling::dynamic) return f;
    if (scaling_.type == RopeScaling::linear) return lowered;
    const A share = scaling_.type == RopeScaling::llama3 ? rising(A(scaling_.original_positions) / (A(2 * M_PI) / f)) : A(1) - rising(A(j));
    return share <= 0 ? lowered : share >= 1 ? f : (A(1) - share) * lowered + share * f;
  }
  double amplitude() const { return amplitude_; }  // that cos and sin are scaled by

 private:
  template <class A>
  GYR_FUNCTION A rising(A x) const {
    return (x - A(first_)) / (A(last_) - A(first_));
  }

  double theta_;
  RopeScaling scaling_;
  Index half_;
  double amplitude_ = 1, first_ = 0, last_ = 1;  // what the share rises, or falls, between
};

// cos and sin of the positions 0 to P - 1, times the amplitude of their frequencies, in Acc<T> throughout (float angles for float and bf16, as
// Hugging Face has them).
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
