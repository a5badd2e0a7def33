// SPDX-License-Identifier: BSD-3-Clause
// Dropout (Srivastava et al., 2014): a number becomes zero with probability p and is divided by 1 - p otherwise. Which of the two is a function of
// where it stands, never of who asks: a sample of the run, a token of it, a channel, or a key that the token looks at and the head that looks, under
// a key made of seed, step and place in the model. Nothing is stored; backward and forwards that run again draw the same.
#pragma once

#include <string_view>

#include "kernels/device.hpp"
#include "kernels/philox.hpp"

namespace gyr {

struct Dropout {
  PhiloxKey key;
  std::uint32_t limit = 0;                      // of 2^32: random words below drop their number; 0: none does
  double kept = 1;                              // what the others are multiplied by
  Index first_sample = 0, first_head = 0;       // numbers of the first sequence, and of attention's first head, that kernels are given
  static constexpr Index most_heads = 1 << 22;  // they share a word of the counter with samples beyond 2^32

  GYR_FUNCTION bool drops() const { return limit > 0; }
  // Counts columns 4 n to 4 n + 3 of a row: the token of a sequence, and the head that it looks with.
  GYR_FUNCTION PhiloxWords counter(Index sequence, Index head, Index row, Index n) const {
    const std::uint64_t sample = std::uint64_t(first_sample + sequence);
    return {{std::uint32_t(n), std::uint32_t(row), std::uint32_t(sample),
             std::uint32_t(sample >> 32) * std::uint32_t(most_heads) + std::uint32_t(first_head + head)}};
  }
  template <class A>
  GYR_FUNCTION A factor(std::uint32_t word) const {
    return word < limit ? A(0) : A(kept);
  }
};

// At a place in the model, with probability p in [0, 1).
Dropout dropout_at(std::uint64_t seed, std::int64_t step, std::string_view place, double p, Index first_sample);

// Where rows stand in their sequences: T of each, in blocks of neighbouring tokens.
struct TokenPlaces {
  Index seq_length = 1, block_length = 1;
  Index first[2] = {0, 0};  // token that each block of a sequence begins with

  GYR_FUNCTION Index sequence(Index row) const { return row / seq_length; }
  GYR_FUNCTION Index token(Index row) const { return first[row % seq_length / block_length] + row % block_length; }
};

// y = x where it is kept, times what belongs to it, and zero elsewhere; y may be x.   Row r is row first_row + r of the places.
template <class T>
void drop(Device&, const Dropout&, const TokenPlaces&, Index first_row, Tensor2<const T> x, Tensor2<T> y);

}  // namespace gyr
