// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the chunks of a micro-batch (layers R) that a context-parallel rank reads. EncoderInput has those of all
// chunks: the n-th neighbour of chunk c of sequence b has index (n B + b) l + c.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Layout of the neighbours of the chunks of this rank's blocks, which are sequences of their own. Their numbers do not depend on the
// ranks that share the text, nor on the size of a micro-batch.
SequenceLayout layout_of_neighbours(const SequenceLayout& text, const RetrievalConfig&);

// The neighbours of the chunks of this rank's blocks, in the order of the blocks. Empty tokens or lengths stay empty.
EncoderInput neighbours_here(const SequenceLayout& text, const RetrievalConfig&, const EncoderInput& all);

// A neighbour that rows of this rank attend to: the number of these rows, which are consecutive; the first of them among this rank's rows of the
// text; and its distance from the last token of the chunk, whose position is `after` less. Rows may go on after the end of a block.
struct QueriedNeighbour {
  Index index, rows, row, after;

  // Packed documents: row `i` sees the neighbour if its document has the last token of the chunk. `positions`: of the rows in their documents.
  bool seen_by(Index i, std::span<const std::int32_t> positions) const {
    const auto at = std::size_t(row + i);
    return at < positions.size() && Index(positions[at]) >= after + i;
  }
};
// In the order of the queries: for each n, the n-th neighbours of this rank's chunks, then those of the chunks before its
// blocks.
std::vector<QueriedNeighbour> queried_neighbours(const SequenceLayout& text, const RetrievalConfig&);

}  // namespace gyr
