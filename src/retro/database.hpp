// SPDX-License-Identifier: BSD-3-Clause
// The database of a project: all chunks that a query can retrieve, in db/merged/train.hdf5. The id of a chunk is its row.
// Names and shapes of the datasets are those of Megatron-LM (tools/retro of core_v0.9.0).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/retro/blocks.hpp"
#include "src/retro/project.hpp"

namespace gyr::retro {

inline constexpr Index chunk_columns = 5, offset_columns = 3;

// A row of `chunks`. Tokens are not copied: they are [first, last) of the document.
struct ChunkRow {
  std::uint32_t corpus, document, first, last;
  std::uint32_t terms;  // tokens that a retriever compares
};
static_assert(sizeof(ChunkRow) == chunk_columns * sizeof(std::uint32_t));

// Tokens of a neighbour after those of its chunk.
struct PassageRule {
  // The next chunk of the database follows, whatever its document, and the first one after the last (Megatron-LM). A missing
  // neighbour is the last chunk. False: the next chunk follows if it is of the same document.
  bool any_document = false;
  std::optional<std::int32_t> padding = {};  // token that fills each chunk; none: the neighbour ends with a chunk that is not full
};

class Database {
 public:
  // Opens the merged file. Exit::missing if build-db has not finished. Exit::data if its datasets contradict each other.
  // The arguments must outlive the database.
  Database(const std::filesystem::path& project, const ProjectSettings&, const Corpora&);

  std::int64_t size() const { return size_; }            // N: number of chunks
  std::int64_t documents() const { return documents_; }  // documents of all corpora that entered the database
  const Corpora& corpora() const { return corpora_; }
  const ProjectSettings& settings() const { return settings_; }
  // Rows [first, first + count). Exit::data, with file, dataset and row, for a chunk beyond its document or corpus.
  std::vector<ChunkRow> rows(std::int64_t first, std::int64_t count) const;
  std::vector<std::int32_t> tokens(const ChunkRow&) const;
  // Tokens of a neighbour: those of the chunk, and of the next chunk by the rule.
  std::vector<std::int32_t> passage(std::int64_t id, const PassageRule& = {}) const;
  // Chunks [first, last) of document number `d` of all documents. Exit::data if the offsets fall.
  struct DocumentChunks {
    std::size_t corpus;
    std::int64_t document, first, last;
  };
  DocumentChunks document(std::int64_t d) const;

 private:
  void require_sound(const ChunkRow&, std::int64_t id) const;

  const ProjectSettings& settings_;
  const Corpora& corpora_;
  hdf5::TableReader file_;
  std::int64_t size_, documents_;
};

}  // namespace gyr::retro
