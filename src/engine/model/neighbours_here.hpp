// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the chunks of a micro-batch (layers R) that a context-parallel rank reads. EncoderInput has those of all
// chunks: the n-th neighbour of chunk c of sequence b has index (n B + b) l + c.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// The neighbours of the chunks of this rank's blocks, in the order of the blocks. Empty tokens or lengths stay empty.
EncoderInput neighbours_here(const SequenceLayout& text, const RetrievalConfig&, const EncoderInput& all);

// A neighbour that rows of this rank attend to, and the number of these rows.
struct QueriedNeighbour {
  Index index, rows;
};
// In the order of the queries: for each n, the n-th neighbours of this rank's chunks, then those of the chunks before its
// blocks.
std::vector<QueriedNeighbour> queried_neighbours(const SequenceLayout& text, const RetrievalConfig&);

}  // namespace gyr
