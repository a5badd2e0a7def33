// SPDX-License-Identifier: BSD-3-Clause
// Packed documents for tests: converts document lengths into the positions that kernels and micro-batches take.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/device/documents.hpp"

namespace gyr::testing {

// Lengths of the consecutive documents of a sequence. The last document is truncated at the end of the sequence.
using Lengths = std::vector<Index>;

// Document lengths that matter for chunks of 4 tokens and a convolution over 4 tokens: one token per document, shorter
// than a chunk, longer than a chunk, at and next to chunk boundaries, and one document for the full sequence.
inline std::vector<Lengths> document_splits(Index seq_length) {
  return {Lengths(seq_length, 1), {1, 2, 3, 1, 2, seq_length}, {3, 9, 1, seq_length}, {4, 4, 8, seq_length}, {5, 6, 2, seq_length}, {seq_length}};
}

// Positions within documents for the sequences [first, first + batch). Sequence b starts with the b-th length and wraps
// around, so that document boundaries differ between neighbouring sequences.
inline std::vector<std::int32_t> positions_of(const Lengths& lengths, Index batch, Index seq_length, Index first = 0) {
  std::vector<std::int32_t> all;
  for (Index b = first; b < first + batch; ++b) {
    std::vector<std::int32_t> one;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      for (Index t = 0; t < lengths[(b + i) % lengths.size()] && Index(one.size()) < seq_length; ++t) one.push_back(std::int32_t(t));
    ensure(Index(one.size()) == seq_length, "documents of {} tokens in a sequence of {}", one.size(), seq_length);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// Rows of a batch that belong to one document: [first, first + count) of sequence `sequence`.
struct Extent {
  Index sequence, first, count;
};
inline std::vector<Extent> extents_of(const std::vector<std::int32_t>& positions, Index seq_length) {
  std::vector<Extent> extents;
  for (Index r = 0; r < Index(positions.size()); ++r) {
    if (positions[r] == 0 || r % seq_length == 0) extents.push_back({r / seq_length, r % seq_length, 0});
    extents.back().count += 1;
  }
  return extents;
}

// Copy the rows of one document out of an array with `width` values per row, and back.
inline std::vector<double> extract(const std::vector<double>& x, const Extent& e, Index seq_length, Index width) {
  const auto begin = x.begin() + (e.sequence * seq_length + e.first) * width;
  return {begin, begin + e.count * width};
}
inline void put_back(const std::vector<double>& part, const Extent& e, Index seq_length, Index width, std::vector<double>& x) {
  std::copy(part.begin(), part.end(), x.begin() + (e.sequence * seq_length + e.first) * width);
}

// Number of tokens after each row in its document.
inline std::vector<std::int32_t> ahead_of(const std::vector<std::int32_t>& positions, Index seq_length) {
  std::vector<std::int32_t> ahead;
  for (const Extent& e : extents_of(positions, seq_length))
    for (Index t = e.count - 1; t >= 0; --t) ahead.push_back(std::int32_t(t));
  return ahead;
}

// Document information in host memory, where the tested kernels run. `ahead` (ahead_of) is needed for bidirectional
// attention.
inline Documents documents_of(const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& ahead = {}) {
  if (positions.empty()) return {};
  const auto tensor = [](const std::vector<std::int32_t>& x) { return Tensor1<const std::int32_t>(x.data(), x.size()); };
  return {tensor(positions), positions, tensor(ahead), ahead};
}

}  // namespace gyr::testing
