// SPDX-License-Identifier: BSD-3-Clause
// Lists of consecutive chunks in the form that a search reads: 16-bit ids and 16-bit pair codes. A pair is (f, |c|), the
// occurrences of a term in a chunk and the chunk's length. It determines the chunk's contribution to a score except for idf(t), and
// few distinct pairs occur:
//   contribution(t, pair) = idf(t) a / d,   a = f (k1 + 1),   d = f + k1 (1 - b + b |c| / mean)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/retro/bm25.hpp"

namespace gyr::retro {

struct PostingWindow {
  // A window has at most this number of chunks and of distinct lengths, so that codes fit in 16 bits: 255 x 257 pairs.
  static constexpr std::size_t most_chunks = 65'536, most_lengths = 257;

  std::int64_t first = 0;                         // id of the first chunk
  std::vector<std::uint32_t> terms;               // ascending
  std::vector<std::uint64_t> offsets;             // [terms + 1]: list i has the elements [offsets[i], offsets[i + 1])
  std::vector<std::uint16_t> ids;                 // ascending in each list, relative to `first`
  std::vector<std::uint16_t> codes;               // rows of a and d
  std::vector<double> a, d;                       // [pair]
  std::vector<std::uint32_t> corpora, documents;  // [chunk]: origin

  std::size_t chunks() const { return corpora.size(); }
  // List of a term; -1 if it has none.
  std::int64_t list_of(std::uint32_t term) const;
  // values[pair] = contribution(t, pair)
  void contributions(double idf, double* values) const;
  // scores[chunk] += contribution(t, pair of the chunk) over a list. `values`: those of all pairs, or null to compute each.
  void add(std::size_t list, double idf, const double* values, double* scores) const;
};

// Divides a block into windows. `mean`: mean length over all chunks of the index.
std::vector<PostingWindow> windows_of(const PostingBlock&, double mean);

}  // namespace gyr::retro
