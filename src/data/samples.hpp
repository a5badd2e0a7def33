// SPDX-License-Identifier: BSD-3-Clause
// Training samples of a corpus: windows of L + 1 tokens, one every L tokens, so that each token but the first is
// predicted once. L sequence length, E epochs
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

// Sequences [first, last) of a token file.
struct SequenceRange {
  std::int64_t first, last;
};

enum class SampleOrder {
  shuffled,  // windows of the file as it lies, in an order that is a pure function of (seed, number): no memory, no end
  megatron   // documents shuffled, joined, cut into windows, and these shuffled, as Megatron-LM does it; ends after E
             // epochs
};
// "shuffled", "megatron". Exit::config for anything else.
SampleOrder parse_sample_order(std::string_view name);

// The tokens of range `r` of `file`, as samples. Reading is safe from several threads.
class Samples {
 public:
  virtual ~Samples() = default;
  // Fills `out` (L + 1 tokens) with sample `number` >= 0. Exit::data for ids outside [0, vocab_size).
  virtual void read(std::int64_t number, std::span<std::int32_t> out, std::int64_t vocab_size) const = 0;
  virtual std::int64_t per_epoch() const = 0;  // windows in one pass over the range
  virtual std::int64_t size() const = 0;       // samples there are; 2^63 - 1 where they never end
};

// Sample n is window pi(n mod W) of the range, W windows to an epoch, pi a permutation keyed by (seed, n / W): every
// epoch visits each window once. `file` must outlive the result. Exit::data when the range has fewer than L + 1 tokens.
std::unique_ptr<Samples> shuffled_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed);

// Bit-compatible with Megatron-LM's GPTDataset for `requested` samples: the document index, then the shuffle index,
// come from one MT19937 stream as numpy's RandomState(seed) draws it, and the last epoch is shuffled apart when less
// than 80 % of it is used. Takes 4 bytes per document and epoch, and 4 per sample. Exit::config when seed or counts
// pass 32 bits.
std::unique_ptr<Samples> megatron_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed,
                                          std::int64_t requested);

// A permutation of [0, n), evaluated one element at a time: a Feistel network on the next even number of bits, walked
// until the value falls below n (Black and Rogaway 2002). `key` picks the permutation.
std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t key);

}  // namespace gyr
