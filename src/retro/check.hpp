// SPDX-License-Identifier: BSD-3-Clause
// Checks a project: a random share of its documents is cut again, and a random share of its queries is searched again.
#pragma once

#include "src/retro/neighbours.hpp"
#include "src/retro/retriever.hpp"

namespace gyr::retro {

struct CheckCounts {
  std::int64_t documents = 0, queries = 0;      // checked
  std::int64_t blocks = 0, missing_blocks = 0;  // block files of neighbours; those of them that do not exist
};

// `share`: fraction of documents and of queries, each chosen independently by `seed`. Exit::data with file, dataset and row
// of the first difference, and both values. `open`: opens the index; called if the project has queries. Collective.
CheckCounts check_project(const std::filesystem::path& project, const Database&, double share, std::uint64_t seed, Communicator& world,
                          const std::function<std::unique_ptr<ChunkSearch>()>& open);
// The same with a BM25 index.
CheckCounts check_project(const std::filesystem::path& project, const Database&, double share, std::uint64_t seed, Communicator& world);

}  // namespace gyr::retro
