// SPDX-License-Identifier: BSD-3-Clause
// Training samples of a corpus. Samples of joined documents are windows of L + 1 tokens, one every L tokens, so that
// every token but the first is predicted once; if the labels belong to the tokens themselves, a window has L tokens.
// Samples of full documents are in packing.hpp. A document is a sequence of the token file, the unit of splits and
// shuffles. L: sequence length, E: epochs.
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
  shuffled,  // windows of the joined documents, in an order that is a pure function of (seed, number); needs no memory; endless
  megatron,  // as Megatron-LM: documents shuffled and joined, split into windows, and the windows shuffled; ends after E
             // epochs
  documents  // full documents packed into windows, with padding at the end; endless
};
// Parses "shuffled", "megatron" or "documents". Exit::config for anything else.
SampleOrder parse_sample_order(std::string_view name);

// `count` tokens of `sequence`, from `offset` on.
struct Extract {
  std::int64_t sequence, offset, count;
};

// The tokens of a range of sequences of a file, as samples. Thread-safe.
class Samples {
 public:
  virtual ~Samples() = default;
  // Returns the nonempty extracts of sample `number` >= 0, in order. Together they are one window, or fewer tokens if
  // padding follows.
  virtual std::vector<Extract> extracts(std::int64_t number) const = 0;
  virtual std::int64_t per_epoch() const = 0;  // number of windows in one pass over the range
  virtual std::int64_t size() const = 0;       // number of samples; 2^63 - 1 if the order is endless
  // Extracts of window `w` in [0, per_epoch()), which is the same in every epoch; only for the order shuffled.
  virtual std::vector<Extract> window(std::int64_t w) const;
  virtual std::int64_t window_of(std::int64_t number) const;  // window of sample `number`; likewise
  // The tokens after the last complete window; empty for the order documents.
  virtual std::vector<Extract> rest() const { return {}; }
  // Notes for the user about this order, such as truncated documents; may be empty.
  virtual std::string note() const { return {}; }
};

// Sample n is window pi(n mod W) of the range. W: windows per epoch; pi: a permutation keyed by (seed, n / W), so that
// every epoch visits each window once. If `predicts`, windows have L + 1 tokens, else L. `file` must outlive the
// result. Exit::data if the range has fewer tokens than one window.
std::unique_ptr<Samples> shuffled_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts = true);

// Bit-compatible with Megatron-LM's GPTDataset for `requested` samples. The document index, then the shuffle index, are
// drawn from one MT19937 stream like numpy's RandomState(seed). The last epoch is shuffled separately if less than 80 %
// of it is used. Memory: 4 bytes per document and epoch, and 4 per sample. Exit::config if the seed or a count exceeds
// 32 bits.
std::unique_ptr<Samples> megatron_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, std::int64_t requested);

// Element i of a permutation of [0, n), computed without a table: a Feistel network on an even number of bits with
// cycle walking, that is, repeated until the value is below n (Black and Rogaway 2002). `key` selects the permutation.
std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t key);

// Mixes 64 bits: the finaliser of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t x);
// The key of one epoch's permutation.
std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);

}  // namespace gyr
