// SPDX-License-Identifier: BSD-3-Clause
// Rotary position embedding, rotate-half layout: u' = u cos + (-u2 ; u1) sin, angle = position theta^(-2j/E).
//   R rows, P positions, E rotary channels of a head (head_dim), j < E/2
#pragma once

#include <cmath>

#include "kernels/device/device.hpp"

namespace gyr {

// RoPE scaling: lowers the frequencies f = theta^(-2j/E) for sequences longer than in pre-training, as Hugging Face's rope_type. With
// turns(f) = original_positions f / (2 pi), f becomes fraction f + (1 - fraction) f / factor. A fraction of 1 keeps f, a fraction of 0 lowers it
// fully.
//   linear   fraction = 0
//   llama3   fraction rises with turns(f), from 0 at low_freq_factor to 1 at high_freq_factor (Llama 3.1)
//   yarn     fraction falls with j, from 1 at the pair with high_freq_factor turns to 0 at the pair with low_freq_factor turns. Both pairs are
//   rounded
//            outwards if `truncate`. cos and sin are scaled by attention_factor, or by 0.1 ln(factor) + 1 if that is 0 (Peng et al., "YaRN", 2023,
//            where the two factors are called beta_fast and beta_slow)
//   dynamic  f itself is kept. For L > original_positions, theta is multiplied by (factor L / original_positions - factor + 1)^(E / (E - 2)) (NTK).
//            L is the number of tokens of the row's own sequence.
struct RopeScaling {
  enum Type { none, linear, llama3, yarn, dynamic } type = none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  Index original_positions = 8192;
  double attention_factor = 0;
  bool truncate = true;

  auto operator<=>(const RopeScaling&) const = default;
};

// RoPE frequencies of `half` channel pairs; with dynamic scaling, those of a sequence no longer than original_positions.
class RopeFrequencies {
 public:
  RopeFrequencies(double theta, const RopeScaling& scaling, Index half);

  // The frequencies of a sequence of `length` tokens.
  GYR_FUNCTION RopeFrequencies of_length(Index length) const {
    RopeFrequencies scaled = *this;
    if (scaling_.type == RopeScaling::dynamic && length > scaling_.original_positions && half_ > 1) {
      const double growth = scaling_.factor * double(length) / double(scaling_.original_positions) - (scaling_.factor - 1);
      scaled.theta_ *= std::pow(growth, double(half_) / double(half_ - 1));
    }
    return scaled;
  }

  // Frequency of pair j, computed in type A, as in Hugging Face.
  template <class A>
  GYR_FUNCTION A at(Index j) const {
    const A f = A(1) / std::pow(A(theta_), A(2 * j) / A(2 * half_)), lowered = f / A(scaling_.factor);
    if (scaling_.type == RopeScaling::none || scaling_.type == RopeScaling::dynamic) return f;
    if (scaling_.type == RopeScaling::linear) return lowered;
    const A fraction = scaling_.type == RopeScaling::llama3 ? rising(A(scaling_.original_positions) / (A(2 * M_PI) / f)) : A(1) - rising(A(j));
    return fraction <= 0 ? lowered : fraction >= 1 ? f : (A(1) - fraction) * lowered + fraction * f;
  }
  double amplitude() const { return amplitude_; }  // factor by which cos and sin are scaled

 private:
  template <class A>
  GYR_FUNCTION A rising(A x) const {
    return (x - A(first_)) / (A(last_) - A(first_));
  }

  double theta_;
  RopeScaling scaling_;
  Index half_;
  // first_, last_: range of turns (llama3) or pair indices (yarn) in which the fraction changes between 0 and 1
  double amplitude_ = 1, first_ = 0, last_ = 1;
};

// cos and sin of the angles at positions 0 to P - 1, times the amplitude of their frequencies. Computed in Acc<T>
// throughout (float angles for float and bf16, as in Hugging Face).
template <class A>
struct Rotation {
  Tensor2<A> cosine, sine;  // tables of cos and sin: (P,E/2)
};
template <class A>
void rope_table(Device&, double rope_theta, const RopeScaling&, const Rotation<A>&);

// Channel pairs that each component of a row's position rotates: component s has the pairs from end(s - 1) to end(s).
//   M-RoPE (Qwen2-VL): one sequence of frequencies over all sections; components time, row and column (mrope_section)
//   2-D RoPE of image patches: `restarts`, the frequencies of each section start from the first and fall as fast as in a head of that many pairs
struct RotarySections {
  static constexpr int most = 4;
  int count = 1;
  Index ends[most] = {};
  bool restarts = false;

  GYR_FUNCTION int of(Index pair) const {
    int s = 0;
    while (s + 1 < count && pair >= ends[s]) ++s;
    return s;
  }
  // Index of the frequency of a pair.
  GYR_FUNCTION Index frequency(Index pair) const {
    const int s = of(pair);
    return restarts && s > 0 ? pair - ends[s - 1] : pair;
  }
  Index frequencies(Index pairs) const { return restarts && count > 1 ? ends[0] : pairs; }
};

// Positions of the rows of a pass, each with as many components as there are sections.
struct RotaryPositions {
  Tensor1<const std::int32_t> values;  // (R C) component s of row r at r C + s
  RotarySections sections = {};
};

// The same for the rows of a pass: table row r is for position r, in a sequence of lengths(r) tokens. `lengths` may be empty, except with dynamic
// scaling. If the components of a row are equal, and sections do not restart, its angles are those of rope_table.
template <class A>
void rope_table_of_rows(Device&, double rope_theta, const RopeScaling&, const RotaryPositions&, Tensor1<const std::int32_t> lengths /*(R)*/,
                        const Rotation<A>& /*(R,E/2)*/);

enum class Rotate { forward, backward };  // backward rotates by -angle: the transpose

// y = scale * x, with the first E channels of each head rotated by the position of its row. E is that of the table; a
// head may have more channels (partial rotary positions, as in GPT-NeoX). S and T may differ. If they do not, x and y
// may be the same memory.
template <class S, class T>
void rope(Device&, Rotate, Index num_heads, double scale, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions /*(R)*/,
          Matrix<const S> x /*(R,heads width)*/, Matrix<T> y);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void rope_table(Device&, const RopeFrequencies&, const Rotation<A>&);
template <class A>
void rope_table_of_rows(Device&, const RopeFrequencies&, const RotaryPositions&, Tensor1<const std::int32_t> lengths, const Rotation<A>&);
template <class S, class T>
void rope(Device&, Rotate, Index num_heads, double scale, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const S> x,
          Matrix<T> y);

}  // namespace backend

}  // namespace gyr
