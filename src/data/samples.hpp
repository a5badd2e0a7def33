// SPDX-License-Identifier: BSD-3-Clause
// Training samples of a corpus: which tokens make up which sample. Samples of joined text are windows of L + 1 tokens, one
// every L tokens, so that each token but the first is predicted once, or of L tokens that are labelled themselves; samples of whole documents are
// packing.hpp's. A document is a sequence of the token file: what splits count and what is shuffled.   L sequence length, E epochs
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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
  megatron,  // documents shuffled, joined, cut into windows, and these shuffled, as Megatron-LM does it; ends after E
             // epochs
  documents  // whole documents packed into windows, with padding behind; no end
};
// "shuffled", "megatron", "documents". Exit::config for anything else.
SampleOrder parse_sample_order(std::string_view name);

// `count` tokens of `sequence`, from `offset` on.
struct Extract {
  std::int64_t sequence, offset, count;
};

// The tokens of range `r` of a file, as samples. Safe from several threads.
class Samples {
 public:
  virtual ~Samples() = default;
  // The extracts of sample `number` >= 0, in order and none empty: a window's tokens together, or fewer where padding follows.
  virtual std::vector<Extract> extracts(std::int64_t number) const = 0;
  virtual std::int64_t per_epoch() const = 0;  // windows in one pass over the range
  virtual std::int64_t size() const = 0;       // samples there are; 2^63 - 1 where they never end
  // What the next window would begin with, were there enough of it; none where documents are whole.
  virtual std::vector<Extract> rest() const { return {}; }
  // What the user of this order should know; empty where there is nothing to say.
  virtual std::string note() const { return {}; }
};

// Sample n is window pi(n mod W) of the range, W windows to an epoch, pi a permutation keyed by (seed, n / W): every
// epoch visits each window once. `predicts`: the token behind each, else windows have L. `file` must outlive the result. Exit::data when the range
// has fewer tokens than a window.
std::unique_ptr<Samples> shuffled_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts = true);

// Bit-compatible with Megatron-LM's GPTDataset for `requested` samples: the document index, then the shuffle index,
// come from one MT19937 stream as numpy's RandomState(seed) draws it, and the last epoch is shuffled apart when less
// than 80 % of it is used. Takes 4 bytes per document and epoch, and 4 per sample. Exit::config when seed or counts
// pass 32 bits.
std::unique_ptr<Samples> megatron_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, std::int64_t requested);

// A permutation of [0, n), evaluated one element at a time: a Feistel network on the next even number of bits, walked
// until the value falls below n (Black and Rogaway 2002). `key` picks the permutation.
std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t key);

// Mixes 64 bits: the finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x);
// The key of one epoch's permutation.
std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);

}  // namespace gyr
