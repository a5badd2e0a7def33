// SPDX-License-Identifier: BSD-3-Clause
// Layers R in generation. A prompt is read like a text in training, except that its first chunk may be shorter. Afterwards
// each sequence keeps
//   the rows of its present chunk that the first R has read, (m, D), until the chunk ends and its neighbours are encoded
//   in each R, keys and values of the neighbours of its last complete chunk, (k r, 2 key channels)
// A token that ends a chunk sees the neighbours of this chunk already.
#pragma once

#include <numeric>

#include "modules/pass/sequence_layout.hpp"

namespace gyr {

// Chunks of the text whose neighbours are encoded: all of m tokens, or in generation of stated lengths.
class ChunksOfText {
 public:
  ChunksOfText(const SequenceLayout& text, Index count, Index m) : lengths_(text.chunks.lengths) {
    if (lengths_.empty()) lengths_.assign(std::size_t(count), m);
  }
  Index rows() const { return std::accumulate(lengths_.begin(), lengths_.end(), Index(0)); }
  // Calls body(first chunk, chunks, tokens of each, first row) for consecutive chunks of equal length.
  template <class Body>
  void each(const Body& body) const {
    Index row = 0;
    for (std::size_t first = 0, last = 0; first < lengths_.size(); first = last) {
      while (last < lengths_.size() && lengths_[last] == lengths_[first]) ++last;
      body(Index(first), Index(last - first), lengths_[first], row);
      row += Index(last - first) * lengths_[first];
    }
  }

 private:
  std::vector<Index> lengths_;
};

}  // namespace gyr
