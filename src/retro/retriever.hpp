// SPDX-License-Identifier: BSD-3-Clause
// Searches the index of a project on all ranks: each rank holds a part of the blocks in memory, and the results are merged
// on one rank. They do not depend on the number of ranks.
#pragma once

#include "src/retro/chunk_search.hpp"
#include "src/retro/index.hpp"
#include "src/retro/shard.hpp"

namespace gyr::retro {

class Retriever final : public ChunkSearch {
 public:
  // Reads every rank's part of the index. Collective. Exit::missing if a block is missing; Exit::data.
  Retriever(const std::filesystem::path& project, const Database&, Communicator& world);

  // The best `most` chunks with a score above 0 for each query, in order, on rank `owner`; nothing on other ranks.
  // `queries`: distinct terms, ascending, the same on every rank. Collective.
  std::vector<std::vector<Candidate>> search(const std::vector<std::vector<std::int32_t>>& queries, std::int64_t most, int owner);

  // The same for texts.
  std::vector<std::vector<Candidate>> nearest(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t most, int owner) override;
  IndexMark mark() const override { return {index_hash(database().settings(), statistics_.common)}; }

  const TermStatistics& statistics() const { return statistics_; }

 private:
  Communicator& world_;
  TermStatistics statistics_;
  Shard shard_;
};

}  // namespace gyr::retro
