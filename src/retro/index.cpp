// SPDX-License-Identifier: BSD-3-Clause
// Datasets of a block: tokens (n) ascending, offsets (n + 1), ids (p) as differences within each list, the first from the
// block's first chunk, frequencies (p), lengths (chunks). n: terms with a list; p: elements of all lists.
#include "src/retro/index.hpp"

#include <charconv>
#include <cmath>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* index_remedy = "remove the file and run `gyrfalcon retro index` again";

double number_of(const std::string& text, const std::string& name) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= 1, Exit::data,
          "{}: attribute 'common' is '{}', which is no fraction from 0 to 1; {}", name, printable_line(text), index_remedy);
  return value;
}

// Replaces the differences of each list by ids, and checks them.
void decode_lists(PostingBlock& block, std::int64_t chunks, const std::string& name) {
  for (std::size_t list = 0; list < block.terms.size(); ++list) {
    std::uint64_t id = 0;
    for (std::uint64_t i = block.offsets[list]; i < block.offsets[list + 1]; ++i) {
      const bool advances = i == block.offsets[list] || block.ids[i] > 0;
      id += block.ids[i];
      require(advances && id < std::uint64_t(chunks), Exit::data, "{}:ids: row {} leads to chunk {} of a block of {}; {}", name, i, id, chunks,
              index_remedy);
      require(block.frequencies[i] > 0, Exit::data, "{}:frequencies: row {} is 0; {}", name, i, index_remedy);
      block.ids[i] = std::uint32_t(id);
    }
  }
}

void check_lists(const PostingBlock& block, const std::string& name) {
  const std::size_t lists = block.terms.size();
  for (std::size_t i = 1; i < lists; ++i)
    require(block.terms[i - 1] < block.terms[i], Exit::data, "{}:tokens: row {} does not ascend: {} after {}; {}", name, i, block.terms[i],
            block.terms[i - 1], index_remedy);
  require(block.offsets.size() == lists + 1, Exit::data, "{}:offsets: has {} rows for {} tokens; {}", name, block.offsets.size(), lists,
          index_remedy);
  for (std::size_t i = 0; i <= lists; ++i) {
    const std::uint64_t before = i == 0 ? 0 : block.offsets[i - 1], offset = block.offsets[i];
    require(offset >= before && offset <= block.ids.size() && (i > 0 || offset == 0) && (i < lists || offset == block.ids.size()), Exit::data,
            "{}:offsets: row {} is {} after {}, and there are {} ids; {}", name, i, offset, before, block.ids.size(), index_remedy);
  }
  require(block.frequencies.size() == block.ids.size(), Exit::data, "{}:frequencies: has {} rows for {} ids; {}", name, block.frequencies.size(),
          block.ids.size(), index_remedy);
}

}  // namespace

std::string index_hash(const ProjectSettings& s, double common) {
  return hash_of({{"project", s.hash()}, {"retriever", "bm25"}, {"common", fmt::format("{}", common)}});
}

Blocks index_blocks(const fs::path& project, const ProjectSettings& s, std::int64_t chunks) { return {index_folder(project), chunks, s.block}; }

TermStatistics read_statistics(const fs::path& project, const ProjectSettings& s) {
  const fs::path path = index_folder(project) / "statistics.hdf5";
  std::error_code error;
  require(fs::exists(path, error), Exit::missing, "{}: does not exist; `gyrfalcon retro index {}` makes it", path.string(), project.string());
  const hdf5::TableReader file = open_tables(path, s.hash());
  TermStatistics statistics{file.read<std::uint32_t>("tokens"), file.read<std::uint64_t>("chunks"), 0, 0,
                            number_of(file.text("common"), file.name())};
  const auto totals = file.read<std::uint64_t>("totals");
  require(totals.size() == 2 && statistics.chunks.size() == statistics.terms.size(), Exit::data,
          "{}: 'totals' has {} rows instead of 2, or 'chunks' has {} for {} tokens; {}", file.name(), totals.size(), statistics.chunks.size(),
          statistics.terms.size(), index_remedy);
  statistics.size = totals[0], statistics.total = totals[1];
  for (std::size_t i = 0; i < statistics.terms.size(); ++i) {
    require(i == 0 || statistics.terms[i - 1] < statistics.terms[i], Exit::data, "{}:tokens: row {} does not ascend; {}", file.name(), i,
            index_remedy);
    require(statistics.chunks[i] >= 1 && statistics.chunks[i] <= totals[0], Exit::data, "{}:chunks: row {} is {}, but there are {} chunks; {}",
            file.name(), i, statistics.chunks[i], totals[0], index_remedy);
  }
  return statistics;
}

PostingBlock read_postings(const Blocks& blocks, std::int64_t b, const std::string& hash, const Database& database) {
  require(blocks.exists(b), Exit::missing, "{}: does not exist; `gyrfalcon retro index` makes the missing files of an index",
          blocks.file(b).string());
  const hdf5::TableReader file = open_tables(blocks.file(b), hash);
  PostingBlock block{blocks.first(b),
                     file.read<std::uint32_t>("tokens"),
                     file.read<std::uint64_t>("offsets"),
                     file.read<std::uint32_t>("ids"),
                     file.read<std::uint8_t>("frequencies"),
                     file.read<std::uint32_t>("lengths"),
                     {},
                     {}};
  check_lists(block, file.name());
  decode_lists(block, blocks.rows(b), file.name());
  const std::vector<ChunkRow> rows = database.rows(blocks.first(b), blocks.rows(b));
  require(block.lengths.size() == rows.size(), Exit::data, "{}:lengths: has {} rows for {} chunks; {}", file.name(), block.lengths.size(),
          rows.size(), index_remedy);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require(block.lengths[i] == rows[i].terms, Exit::data, "{}:lengths: row {} is {}, but the chunk has {} tokens to compare; {}", file.name(), i,
            block.lengths[i], rows[i].terms, index_remedy);
    block.corpora.push_back(rows[i].corpus), block.documents.push_back(rows[i].document);
  }
  return block;
}

}  // namespace gyr::retro
