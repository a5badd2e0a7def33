// SPDX-License-Identifier: BSD-3-Clause
// Dropout (Srivastava et al., 2014): a number becomes zero with probability p and is divided by 1 - p otherwise. Which of the two is a function of
// where it stands, never of who asks: a sample of the run, a token of it, a channel, or a key that the token looks at and the head that looks, under
// a key made of seed, step and place in the model. Nothing is stored; backward and forwards that run again draw the same. Step and sample lie where
// kernels run, so that what these are told once serves many steps.
#pragma once

#include <string_view>

#include "kernels/base/philox.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

// What changes from micro-batch to micro-batch.
struct DrawnAt {
  std::int64_t step = 0;
  Index first_sample = 0;  // number of the first sequence that kernels are given
};

// What that makes of the random numbers of a place in the model.
struct Draws {
  PhiloxKey key;
  Index first_sample = 0;
};

// At a place in the model.
struct Dropout {
  std::uint64_t seed = 0, place = 0;
  std::uint32_t limit = 0;                      // of 2^32: random words below drop their number; 0: none does
  double kept = 1;                              // what the others are multiplied by
  Index first_head = 0;                         // number of attention's first head that kernels are given
  const DrawnAt* now = nullptr;                 // where kernels run
  static constexpr Index most_heads = 1 << 22;  // they share a word of the counter with samples beyond 2^32

  GYR_FUNCTION bool drops() const { return limit > 0; }
  GYR_FUNCTION Draws at(const DrawnAt& now) const {
    const auto low = [](std::uint64_t x) { return std::uint32_t(x); };
    const auto high = [](std::uint64_t x) { return std::uint32_t(x >> 32); };
    const std::uint64_t step = std::uint64_t(now.step);
    const PhiloxWords mixed = philox({{low(place), high(place), low(step), high(step)}}, {{low(seed), high(seed)}});
    return {{{mixed.at[0], mixed.at[1]}}, now.first_sample};
  }
  // Counts columns 4 n to 4 n + 3 of a row: the token of a sequence, and the head that it looks with.
  GYR_FUNCTION PhiloxWords counter(const Draws& draws, Index sequence, Index head, Index row, Index n) const {
    const std::uint64_t sample = std::uint64_t(draws.first_sample + sequence);
    return {{std::uint32_t(n), std::uint32_t(row), std::uint32_t(sample),
             std::uint32_t(sample >> 32) * std::uint32_t(most_heads) + std::uint32_t(first_head + head)}};
  }
  GYR_FUNCTION PhiloxWords words(const Draws& draws, Index sequence, Index head, Index row, Index n) const {
    return philox(counter(draws, sequence, head, row, n), draws.key);
  }
  template <class A>
  GYR_FUNCTION A factor(std::uint32_t word) const {
    return word < limit ? A(0) : A(kept);
  }
};

// With probability p in [0, 1). `now`: where step and sample lie when kernels ask for them.
Dropout dropout_at(std::uint64_t seed, std::string_view place, double p, const DrawnAt* now);

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
