// SPDX-License-Identifier: BSD-3-Clause
// Okapi BM25 (Robertson and Zaragoza 2009) on token ids:
//   score(q, c) = sum over the distinct terms t of q of  idf(t) f (k1 + 1) / (f + k1 (1 - b + b |c| / mean))
//   idf(t) = ln(1 + (N - n + 1/2) / (n + 1/2))
// N: chunks; n: chunks that contain t; f: occurrences of t in chunk c; |c|: terms of c, mean: their mean; k1 = 1.2, b = 0.75.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyr::retro {

// A chunk that was found.
struct Candidate {
  double score;
  std::int64_t id;
  std::uint32_t corpus, document;
};
// Order of results: the higher score, then the smaller id.
inline bool better(const Candidate& a, const Candidate& b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }
// Sorts the candidates and drops all but the first `most`.
void keep_best(std::vector<Candidate>&, std::int64_t most);

// Counts of terms over all chunks.
struct TermStatistics {
  std::vector<std::uint32_t> terms;   // ascending
  std::vector<std::uint64_t> chunks;  // [term]: n, the chunks that contain it
  std::uint64_t size = 0, total = 0;  // N; terms of all chunks, with repetitions
  double common = 0.1;                // a term in more than this fraction of the chunks has no list if there are over 1000 chunks

  double mean() const { return double(total) / double(size); }
  double idf(std::uint64_t chunks_with_term) const;
  bool is_dropped(std::uint64_t chunks_with_term) const;
  // n of a term; 0 if no chunk contains it.
  std::uint64_t chunks_with(std::uint32_t term) const;
};

// Lists of a block of chunks: list i has the elements [offsets[i], offsets[i + 1]) of ids and frequencies.
struct PostingBlock {
  std::int64_t first = 0;                         // id of the block's first chunk
  std::vector<std::uint32_t> terms;               // ascending; those without a list are left out
  std::vector<std::uint64_t> offsets;             // [terms + 1]
  std::vector<std::uint32_t> ids;                 // ascending in each list, relative to `first`
  std::vector<std::uint8_t> frequencies;          // f, at most 255
  std::vector<std::uint32_t> lengths;             // [chunk]: |c|
  std::vector<std::uint32_t> corpora, documents;  // [chunk]: origin
};

}  // namespace gyr::retro
