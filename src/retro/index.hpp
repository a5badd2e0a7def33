// SPDX-License-Identifier: BSD-3-Clause
// The BM25 index of a project on disk, in index/bm25/: statistics.hdf5 counts the terms of all chunks, and each block file
// holds the lists of a block of chunks. The ranks make the blocks independently of each other.
#pragma once

#include "kernels/comm/communicator.hpp"
#include "src/retro/bm25.hpp"
#include "src/retro/database.hpp"

namespace gyr::retro {

struct IndexCounts {
  std::int64_t terms = 0, dropped = 0;  // distinct terms; those of them that are in too many chunks to have a list
  std::int64_t postings = 0;            // elements of all lists
  std::int64_t blocks = 0, kept = 0;    // block files; those of them that an earlier call has made

  std::int64_t bytes(std::int64_t chunks) const { return postings * 5 + chunks * 4; }  // of lists and lengths on disk
};

// Makes the files that do not exist. `announce`: called on rank 0 with the counts before the blocks are made.
// Collective. Exit::config if the index was made with another `common`. Exit::data, Exit::io.
IndexCounts build_index(const std::filesystem::path& project, const Database&, double common, Communicator& world,
                        const std::function<void(const IndexCounts&)>& announce);

// Statistics of a complete or incomplete index. Exit::missing if there is none.
TermStatistics read_statistics(const std::filesystem::path& project, const ProjectSettings&);
// Hash of the settings that the blocks of an index depend on.
std::string index_hash(const ProjectSettings&, double common);
// Blocks of the index of a database of `chunks` chunks.
Blocks index_blocks(const std::filesystem::path& project, const ProjectSettings&, std::int64_t chunks);
// Reads a block. Exit::data, with file, dataset and row, for lists that contradict each other. Exit::missing.
PostingBlock read_postings(const Blocks&, std::int64_t block, const std::string& hash, const Database&);

}  // namespace gyr::retro
