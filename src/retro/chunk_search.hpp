// SPDX-License-Identifier: BSD-3-Clause
// Search for the chunks of a database that are nearest to texts, by any index.
#pragma once

#include "src/retro/bm25.hpp"
#include "src/retro/database.hpp"

namespace gyr::retro {

// Identifies an index in the settings of queries.
struct IndexMark {
  std::string hash;
  bool vectors = false;  // true: vectors of an encoder, scores are -|x - q|^2; false: BM25, scores are above 0
};

class ChunkSearch {
 public:
  explicit ChunkSearch(const Database& database) : database_(database) {}  // which must outlive the search
  virtual ~ChunkSearch() = default;
  ChunkSearch(const ChunkSearch&) = delete;

  // The best `most` chunks for each text, in order, on rank `owner`; nothing on other ranks. `texts`: token ids, the same on
  // every rank. Collective.
  virtual std::vector<std::vector<Candidate>> nearest(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t most, int owner) = 0;
  virtual IndexMark mark() const = 0;
  const Database& database() const { return database_; }

 private:
  const Database& database_;
};

}  // namespace gyr::retro
