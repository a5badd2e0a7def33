// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the chunks of a training run: query/train-HASH/START-END.hdf5 holds `neighbors` (n, saved), ids of chunks
// of the database with -1 after the last one, and `scores` (n, saved), 0 for missing neighbours. A score of BM25 is above 0, one of vectors at most
// 0.
#pragma once

#include "kernels/comm/communicator.hpp"
#include "src/retro/chunk_search.hpp"
#include "src/retro/queries.hpp"

namespace gyr::retro {

struct NeighbourRows {
  std::vector<std::int64_t> ids;  // [row, saved]
  std::vector<float> scores;
};

Blocks neighbour_blocks(const std::filesystem::path& folder, const QuerySettings&, std::int64_t chunks);
// Reads rows of a block. Exit::data, with file, dataset and row, for an id that is no chunk of the database, a neighbour
// after a missing one, or a score that is not a number. `size`: chunks of the database.
NeighbourRows read_neighbours(const Blocks&, std::int64_t block, const QuerySettings&, std::int64_t size);

struct NeighbourCounts {
  std::int64_t chunks = 0;            // number of queries
  std::int64_t without_two = 0;       // of those, chunks with fewer than two neighbours
  std::int64_t blocks = 0, kept = 0;  // block files; those of them that an earlier call has made
};

// Neighbours of the queries [first, last), on rank `owner`; nothing on other ranks. Collective.
NeighbourRows find_neighbours(const QuerySamples&, const QuerySettings&, ChunkSearch&, std::int64_t first, std::int64_t last, int owner, bool owns);

// Makes the blocks that do not exist. `progress`: called on rank 0 with the queries done so far and their number.
// Collective. Exit::data for a damaged block, Exit::io.
NeighbourCounts build_neighbours(const std::filesystem::path& folder, const QuerySettings&, const QuerySamples&, ChunkSearch&, std::int64_t size,
                                 Communicator& world, const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace gyr::retro
