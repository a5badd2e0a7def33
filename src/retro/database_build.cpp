// SPDX-License-Identifier: BSD-3-Clause
// A block of a corpus: chunks_valid and chunks_invalid (n, 4) are {document, first token, last + 1, tokens to compare}.
// doc_offsets (documents, 2) is {document, chunks up to and with it in this block}.
#include "src/retro/database_build.hpp"

#include <cstring>

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/cut.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr Index piece_columns = 4, block_offset_columns = 2;

struct BlockRows {
  std::vector<std::uint32_t> valid, invalid;
  std::vector<std::uint64_t> offsets;
};

Blocks blocks_of(const fs::path& project, const ProjectSettings& s, std::size_t corpus) {
  return {database_folder(project) / s.folder_of(corpus), s.documents(corpus).last, s.block};
}

BlockRows cut_block(const ProjectSettings& s, const Corpora& corpora, std::size_t corpus, std::int64_t first, std::int64_t last) {
  BlockRows rows;
  for (std::int64_t d = first; d < last; ++d) {
    for (const Piece& piece : cut(s, corpora.tokens(corpus, d), corpora.targets(corpus, d)))
      for (const std::int64_t value : {d, piece.first, piece.last, piece.terms})
        (piece.valid ? rows.valid : rows.invalid).push_back(std::uint32_t(value));
    rows.offsets.push_back(std::uint64_t(d)), rows.offsets.push_back(rows.valid.size() / piece_columns);
  }
  return rows;
}

void write_block(const fs::path& path, const std::string& hash, int rank, const BlockRows& rows) {
  write_tables(path, hash, rank, [&](hdf5::TableWriter& file) {
    file.add<std::uint32_t>("chunks_valid", piece_columns, rows.valid);
    file.add<std::uint32_t>("chunks_invalid", piece_columns, rows.invalid);
    file.add<std::uint64_t>("doc_offsets", block_offset_columns, rows.offsets);
  });
}

// Reads a block back. Exit::data with the row if its documents or offsets are not those of the block.
BlockRows read_block(const Blocks& blocks, std::int64_t block, const std::string& hash) {
  const hdf5::TableReader file = open_tables(blocks.file(block), hash);
  BlockRows rows{file.read<std::uint32_t>("chunks_valid", piece_columns), file.read<std::uint32_t>("chunks_invalid", piece_columns),
                 file.read<std::uint64_t>("doc_offsets", block_offset_columns)};
  const char* const remedy = "remove the file and run build-db again";
  require(std::int64_t(rows.offsets.size()) == blocks.rows(block) * block_offset_columns, Exit::data,
          "{}:doc_offsets: has {} rows for {} documents; {}", file.name(), rows.offsets.size() / block_offset_columns, blocks.rows(block), remedy);
  std::uint64_t before = 0;
  for (std::int64_t i = 0; i < blocks.rows(block); ++i) {
    const std::uint64_t document = rows.offsets[std::size_t(2 * i)], chunks = rows.offsets[std::size_t(2 * i + 1)];
    require(document == std::uint64_t(blocks.first(block) + i) && chunks >= before && chunks <= rows.valid.size() / piece_columns, Exit::data,
            "{}:doc_offsets: row {} is document {} with {} chunks up to it, after {}; {}", file.name(), i, document, chunks, before, remedy);
    for (; before < chunks; ++before)
      require(rows.valid[std::size_t(piece_columns * before)] == document, Exit::data, "{}:chunks_valid: row {} is not of document {}; {}",
              file.name(), before, document, remedy);
  }
  require(before == rows.valid.size() / piece_columns, Exit::data, "{}:doc_offsets: counts {} of {} chunks; {}", file.name(), before,
          rows.valid.size() / piece_columns, remedy);
  return rows;
}

// Calls visit(corpus, blocks, block, number) for each block of all corpora.
template <class Visit>
void for_each_block(const fs::path& project, const ProjectSettings& s, Visit&& visit) {
  std::int64_t number = 0;
  for (std::size_t c = 0; c < s.corpora.size(); ++c) {
    const Blocks blocks = blocks_of(project, s, c);
    for (std::int64_t b = 0; b < blocks.count(); ++b) visit(c, blocks, b, number++);
  }
}

// Appends the blocks to the merged tables one after the other.
void fill_merged(const fs::path& project, const ProjectSettings& s, const DatabaseCounts& counts, hdf5::TableWriter& file) {
  const hdf5::TableShape chunks{"chunks", hdf5::Element::u32, counts.chunks, chunk_columns};
  const hdf5::TableShape offsets{"doc_offsets", hdf5::Element::u64, counts.documents, offset_columns};
  file.create(chunks), file.create(offsets);
  std::int64_t row = 0, document = 0;
  for_each_block(project, s, [&](std::size_t corpus, const Blocks& blocks, std::int64_t block, std::int64_t) {
    const BlockRows rows = read_block(blocks, block, s.hash());
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < rows.valid.size(); i += piece_columns) {
      all.push_back(std::uint32_t(corpus));
      all.insert(all.end(), rows.valid.begin() + std::ptrdiff_t(i), rows.valid.begin() + std::ptrdiff_t(i + piece_columns));
    }
    std::vector<std::uint64_t> ends;
    for (std::size_t i = 0; i < rows.offsets.size(); i += block_offset_columns)
      ends.insert(ends.end(), {corpus, rows.offsets[i], std::uint64_t(row) + rows.offsets[i + 1]});
    file.write_rows<std::uint32_t>(chunks, row, all), file.write_rows<std::uint64_t>(offsets, document, ends);
    row += std::int64_t(all.size()) / chunk_columns, document += blocks.rows(block);
  });
  const std::uint64_t count = std::uint64_t(counts.chunks);
  file.add<std::uint64_t>("n_written", 0, {&count, 1});
}

}  // namespace

DatabaseCounts build_database(const fs::path& project, const ProjectSettings& s, const Corpora& corpora, Communicator& world) {
  DatabaseCounts mine;
  const std::string hash = s.hash();
  collective_check(world, [&] {
    make_folder(merged_path(project).parent_path());
    for (std::size_t c = 0; c < s.corpora.size(); ++c) make_folder(blocks_of(project, s, c).folder());
    for_each_block(project, s, [&](std::size_t corpus, const Blocks& blocks, std::int64_t b, std::int64_t number) {
      if (number % world.size() != world.rank()) return;
      const bool kept = blocks.exists(b);
      if (!kept) write_block(blocks.file(b), hash, world.rank(), cut_block(s, corpora, corpus, blocks.first(b), blocks.last(b)));
      const BlockRows rows = read_block(blocks, b, hash);
      mine.documents += blocks.rows(b), mine.chunks += std::int64_t(rows.valid.size()) / piece_columns;
      mine.left_out += std::int64_t(rows.invalid.size()) / piece_columns, mine.kept += kept, ++mine.blocks;
    });
  });
  DatabaseCounts all;
  for (const auto member :
       {&DatabaseCounts::documents, &DatabaseCounts::chunks, &DatabaseCounts::left_out, &DatabaseCounts::blocks, &DatabaseCounts::kept})
    all.*member = std::int64_t(world.sum(double(mine.*member)));
  collective_check(world, [&] {
    std::error_code error;
    if (world.rank() != 0 || fs::exists(merged_path(project), error)) return;
    write_tables(merged_path(project), hash, 0, [&](hdf5::TableWriter& file) { fill_merged(project, s, all, file); });
  });
  return all;
}

}  // namespace gyr::retro
