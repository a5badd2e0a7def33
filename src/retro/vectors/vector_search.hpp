// SPDX-License-Identifier: BSD-3-Clause
// Search of the vectors of a project on all ranks, exact or by an approximate index: each rank holds a part of the blocks in memory and encodes a
// part of the texts, and the results are merged on one rank. They do not depend on the number of ranks.
#pragma once

#include "src/retro/chunk_search.hpp"
#include "src/retro/vectors/coded_index.hpp"

namespace gyr::retro {

class VectorSearch final : public ChunkSearch {
 public:
  // Reads every rank's part of the vectors, or of the approximate index if the project has one. Collective. Exit::missing if a block is missing;
  // Exit::data.
  VectorSearch(const std::filesystem::path& project, const Database&, const VectorSettings&, EncodeText, Communicator& world);

  // A text without tokens to encode has no nearest chunk.
  std::vector<std::vector<Candidate>> nearest(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t most, int owner) override;
  IndexMark mark() const override { return {index_hash_, true}; }

 private:
  struct Encoded {
    std::vector<float> vectors;    // [text, width]; 0 for a text without tokens
    std::vector<bool> has_tokens;  // [text]
  };
  Encoded encoded(const std::vector<std::vector<std::int32_t>>& texts);

  VectorSettings settings_;
  EncodeText encode_;
  Communicator& world_;
  std::string index_hash_;
  std::unique_ptr<VectorShard> shard_;
};

// The index that a project has: an approximate one of vectors, vectors, or else BM25. Exit::missing if there is none.
IndexMark index_mark_of(const std::filesystem::path& project, const ProjectSettings&);
// Description of an index of vectors, with its recall; empty if the project has none.
std::string vectors_text(const std::filesystem::path& project);

}  // namespace gyr::retro
