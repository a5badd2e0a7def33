// SPDX-License-Identifier: BSD-3-Clause
// Dropout (Srivastava et al., 2014): a value becomes zero with probability p, and is divided by 1 - p otherwise. The
// random choice depends only on the logical position, never on the rank: sample of the run, token, and channel (in
// attention: key and head). The Philox key is made of seed, step and place in the model. Nothing is stored: backward
// and recomputed forward passes draw the same values. Kernels read step and sample from device memory, so that a
// captured CUDA graph serves many steps.
#pragma once

#include <string_view>

#include "kernels/base/philox.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

// Values that change from micro-batch to micro-batch.
struct DrawnAt {
  std::int64_t step = 0;
  Index first_sample = 0;  // index, in the run, of the sample that kernels call sequence 0
};

// Philox key and first sample for one place in the model, at one step.
struct Draws {
  PhiloxKey key;
  Index first_sample = 0;
};

// Positions of rows in their sequences: seq_length rows per sequence, in blocks of consecutive tokens.
struct TokenPlaces {
  Index seq_length = 1, block_length = 1;
  Index first[2] = {0, 0};  // first token of each block of a sequence

  GYR_FUNCTION Index sequence(Index row) const { return row / seq_length; }
  GYR_FUNCTION Index token(Index row) const { return first[row % seq_length / block_length] + row % block_length; }
};

// Numbers of the sequences of a pass in the run, from which their masks are drawn. Sequences are samples, or neighbours of the
// chunks of samples (layers R): the n-th neighbour of a chunk has the number (sample * all_chunks + chunk) * neighbours + n.
// The pass has the n-th neighbours of all chunks before the (n + 1)-th.
struct SequenceNumbers {
  TokenPlaces chunks = {};            // of each sample on this rank, in blocks of consecutive chunks
  Index samples = 0, all_chunks = 0;  // samples of the pass, 0: sequences are samples; chunks of a sample on all ranks
  Index neighbours = 1;               // of each chunk

  GYR_FUNCTION Index at(Index first_sample, Index sequence) const {
    if (samples == 0) return first_sample + sequence;
    const Index count = samples * chunks.seq_length, row = sequence % count;
    return ((first_sample + chunks.sequence(row)) * all_chunks + chunks.token(row)) * neighbours + sequence / count;
  }
};

// Dropout at one place in the model.
struct Dropout {
  std::uint64_t seed = 0, place = 0;
  std::uint32_t limit = 0;       // drop threshold out of 2^32: random words below it drop their value; 0: no dropout
  double kept = 1;               // factor of the values that are kept, 1 / (1 - p)
  Index first_head = 0;          // index, in the layer, of the head that kernels call head 0
  const DrawnAt* now = nullptr;  // step and first sample, in memory that kernels read
  SequenceNumbers numbers = {};
  // limit of the number of heads: the head shares a counter word with the upper bits of samples beyond 2^32
  static constexpr Index most_heads = 1 << 22;

  GYR_FUNCTION bool drops() const { return limit > 0; }
  GYR_FUNCTION Draws at(const DrawnAt& now) const {
    const auto low = [](std::uint64_t x) { return std::uint32_t(x); };
    const auto high = [](std::uint64_t x) { return std::uint32_t(x >> 32); };
    const std::uint64_t step = std::uint64_t(now.step);
    const PhiloxWords mixed = philox({{low(place), high(place), low(step), high(step)}}, {{low(seed), high(seed)}});
    return {{{mixed.at[0], mixed.at[1]}}, now.first_sample};
  }
  // Draws of one sequence of a pass, whose number in the run is their first sample.
  GYR_FUNCTION Draws of(const Draws& draws, Index sequence) const { return {draws.key, numbers.at(draws.first_sample, sequence)}; }
  // Philox counter of columns 4 n to 4 n + 3 of a row. draws: those of its sequence. `row` is the token within its sequence,
  // `head` the attention head.
  GYR_FUNCTION PhiloxWords counter(const Draws& draws, Index head, Index row, Index n) const {
    const std::uint64_t sample = std::uint64_t(draws.first_sample);
    return {{std::uint32_t(n), std::uint32_t(row), std::uint32_t(sample),
             std::uint32_t(sample >> 32) * std::uint32_t(most_heads) + std::uint32_t(first_head + head)}};
  }
  GYR_FUNCTION PhiloxWords words(const Draws& draws, Index head, Index row, Index n) const { return philox(counter(draws, head, row, n), draws.key); }
  template <class A>
  GYR_FUNCTION A factor(std::uint32_t word) const {
    return word < limit ? A(0) : A(kept);
  }
};

// Dropout with probability p in [0, 1). `now`: memory from which kernels read step and sample.
Dropout dropout_at(std::uint64_t seed, std::string_view place, double p, const DrawnAt* now);

// y = x times the factor of kept values, and zero for dropped values; y may be x.   Row r is row first_row + r of
// `places`.
template <class T>
void drop(Device&, const Dropout&, const TokenPlaces&, Index first_row, Tensor2<const T> x, Tensor2<T> y);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void drop(Device&, const Dropout&, const TokenPlaces&, Index first_row, Tensor2<const T> x, Tensor2<T> y);

}  // namespace backend

}  // namespace gyr
