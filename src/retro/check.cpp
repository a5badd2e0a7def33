// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/check.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/cut.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* database_remedy = "remove the folder db, and `gyrfalcon retro build-db` with the options of its first call makes it again";

// A pure function of its arguments, so that all ranks choose the same items.
bool is_chosen(std::uint64_t seed, std::int64_t item, double share) {
  return double(mixed(mixed(seed) ^ std::uint64_t(item)) >> 11) < share * double(std::uint64_t(1) << 53);
}

void check_document(const fs::path& file, const Database& database, std::int64_t d) {
  const Database::DocumentChunks chunks = database.document(d);
  std::vector<Piece> pieces =
      cut(database.settings(), database.corpora().tokens(chunks.corpus, chunks.document), database.corpora().targets(chunks.corpus, chunks.document));
  std::erase_if(pieces, [](const Piece& piece) { return !piece.valid; });
  require(std::int64_t(pieces.size()) == chunks.last - chunks.first, Exit::data,
          "{}:doc_offsets: row {} has {} chunks, but document {} of corpus {} has {}; {}", file.string(), d, chunks.last - chunks.first,
          chunks.document, chunks.corpus, pieces.size(), database_remedy);
  const std::vector<ChunkRow> rows = database.rows(chunks.first, chunks.last - chunks.first);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ChunkRow& row = rows[i];
    const Piece& piece = pieces[i];
    require(row.corpus == chunks.corpus && row.document == chunks.document && row.first == piece.first && row.last == piece.last &&
                row.terms == piece.terms,
            Exit::data, "{}:chunks: row {} is tokens {} to {} of document {}, {} compared, but it must be {} to {} of {}, {} compared; {}",
            file.string(), chunks.first + std::int64_t(i), row.first, row.last, row.document, row.terms, piece.first, piece.last, chunks.document,
            piece.terms, database_remedy);
  }
}

void compare(const Blocks& blocks, std::int64_t number, const QuerySettings& s, const NeighbourRows& stored, const NeighbourRows& found) {
  const std::int64_t block = number / s.block, row = number - blocks.first(block);
  for (std::int64_t k = 0; k < s.saved; ++k) {
    const auto at = std::size_t(row * s.saved + k);
    const std::string name = blocks.file(block).string();
    require(
        stored.ids[at] == found.ids[std::size_t(k)], Exit::data,
        "{}:neighbors: row {} (chunk {} of sample {}) has chunk {} in column {}, but the search gives {}; remove the file and run `gyrfalcon retro "
        "query` again",
        name, row, number % s.chunks_per_sample(), number / s.chunks_per_sample(), stored.ids[at], k, found.ids[std::size_t(k)]);
    require(stored.scores[at] == found.scores[std::size_t(k)], Exit::data,
            "{}:scores: row {} has {} in column {}, but the search gives {}; remove the file and run `gyrfalcon retro query` again", name, row,
            stored.scores[at], k, found.scores[std::size_t(k)]);
  }
}

// Searches the chosen queries of one folder again. The blocks that exist are checked.
void check_queries(const fs::path& folder, const Database& database, ChunkSearch& search, double share, std::uint64_t seed, Communicator& world,
                   CheckCounts& counts) {
  QuerySettings settings;
  std::optional<QuerySamples> samples;
  collective_check(world, [&] {
    settings = at_places_of(database.settings(), read_query_settings(folder), folder / "config.json");
    require_same({{"project", settings.project}, {"index", settings.index}}, {{"project", database.settings().hash()}, {"index", search.mark().hash}},
                 folder / "config.json", "the database or the index has changed since: remove the folder and run `gyrfalcon retro query` again");
    samples.emplace(settings, database.settings(), folder / "config.json");
  });
  const Blocks blocks = neighbour_blocks(folder, settings, samples->chunks());
  for (std::int64_t b = 0; b < blocks.count(); ++b) {
    NeighbourRows stored;
    bool exists = false;
    collective_check(world, [&] {
      exists = blocks.exists(b);
      if (exists) stored = read_neighbours(blocks, b, settings, database.size());
    });
    ++counts.blocks;
    if (world.sum(exists) < world.size()) {
      ++counts.missing_blocks;
      continue;
    }
    for (std::int64_t number = blocks.first(b); number < blocks.last(b); ++number) {
      if (!is_chosen(seed, number, share)) continue;
      const NeighbourRows found = find_neighbours(*samples, settings, search, number, number + 1, 0, world.rank() == 0);
      collective_check(world, [&] {
        if (world.rank() == 0) compare(blocks, number, settings, stored, found);
      });
      ++counts.queries;
    }
  }
}

std::vector<fs::path> folders_of_queries(const fs::path& project) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(query_folder(project), error))
    if (entry.is_directory(error)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

CheckCounts check_project(const fs::path& project, const Database& database, double share, std::uint64_t seed, Communicator& world,
                          const std::function<std::unique_ptr<ChunkSearch>()>& open) {
  CheckCounts counts;
  collective_check(world, [&] {
    for (std::int64_t d = world.rank(); d < database.documents(); d += world.size())
      if (is_chosen(~seed, d, share)) check_document(merged_path(project), database, d), ++counts.documents;
  });
  counts.documents = std::int64_t(world.sum(double(counts.documents)));
  const std::vector<fs::path> folders = folders_of_queries(project);
  if (folders.empty()) return counts;
  const std::unique_ptr<ChunkSearch> search = open();
  for (const fs::path& folder : folders) check_queries(folder, database, *search, share, seed, world, counts);
  return counts;
}

CheckCounts check_project(const fs::path& project, const Database& database, double share, std::uint64_t seed, Communicator& world) {
  return check_project(project, database, share, seed, world, [&] { return std::make_unique<Retriever>(project, database, world); });
}

}  // namespace gyr::retro
