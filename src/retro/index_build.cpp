// SPDX-License-Identifier: BSD-3-Clause
// Makes the files of a BM25 index: first the counts of all terms, then the lists of each block.
#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/cut.hpp"
#include "src/retro/index.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

using ChunkCounts = std::map<std::uint32_t, std::uint64_t>;  // [term]: chunks that contain it

// Calls visit(row, terms with repetitions) for each chunk of a block.
template <class Visit>
void for_each_chunk(const Database& database, const Blocks& blocks, std::int64_t b, Visit&& visit) {
  for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) {
    const std::vector<std::int32_t> terms = terms_of(database.settings(), database.tokens(row));
    require(terms.size() == row.terms, Exit::data,
            "{}: a chunk of document {} has {} tokens to compare, but the database counts {}; the token files have changed, build the project again",
            database.corpora().file(row.corpus).prefix().string(), row.document, terms.size(), row.terms);
    visit(row, terms);
  }
}

// Counts of the blocks of all ranks, on rank 0.
ChunkCounts counted_chunks(const Database& database, const Blocks& blocks, Communicator& world) {
  ChunkCounts counts;
  collective_check(world, [&] {
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size())
      for_each_chunk(database, blocks, b, [&](const ChunkRow&, std::vector<std::int32_t> terms) {
        terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
        for (const std::int32_t term : terms) ++counts[std::uint32_t(term)];
      });
  });
  std::vector<std::uint64_t> pairs;
  for (const auto& [term, chunks] : counts) pairs.push_back(term), pairs.push_back(chunks);
  ChunkCounts all;
  visit_texts(world, {reinterpret_cast<const char*>(pairs.data()), pairs.size() * sizeof(std::uint64_t)}, [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size(); at += 2 * sizeof(std::uint64_t)) {
      std::uint64_t pair[2];
      std::memcpy(pair, text.data() + at, sizeof pair);
      all[std::uint32_t(pair[0])] += pair[1];
    }
  });
  return all;
}

void write_statistics(const fs::path& project, const Database& database, double common, const ChunkCounts& counts, std::uint64_t total) {
  std::vector<std::uint32_t> terms;
  std::vector<std::uint64_t> chunks;
  for (const auto& [term, count] : counts) terms.push_back(term), chunks.push_back(count);
  const std::uint64_t totals[] = {std::uint64_t(database.size()), total};
  write_tables(index_folder(project) / "statistics.hdf5", database.settings().hash(), 0, [&](hdf5::TableWriter& file) {
    file.set("common", fmt::format("{}", common));
    file.add<std::uint32_t>("tokens", 0, terms), file.add<std::uint64_t>("chunks", 0, chunks), file.add<std::uint64_t>("totals", 0, totals);
  });
}

// An occurrence of a term in a chunk.
struct Posting {
  std::uint32_t term, chunk;
  std::uint8_t frequency;
};

std::vector<Posting> postings_of(const Database& database, const Blocks& blocks, std::int64_t b, const TermStatistics& statistics,
                                 std::vector<std::uint32_t>& lengths) {
  std::vector<Posting> postings;
  for_each_chunk(database, blocks, b, [&](const ChunkRow& row, const std::vector<std::int32_t>& terms) {
    const auto chunk = std::uint32_t(lengths.size());
    lengths.push_back(row.terms);
    for (auto at = terms.begin(), next = at; at != terms.end(); at = next) {
      next = std::upper_bound(at, terms.end(), *at);
      if (!statistics.is_dropped(statistics.chunks_with(std::uint32_t(*at))))
        postings.push_back({std::uint32_t(*at), chunk, std::uint8_t(std::min<std::ptrdiff_t>(next - at, 255))});
    }
  });
  std::stable_sort(postings.begin(), postings.end(), [](const Posting& x, const Posting& y) { return x.term < y.term; });
  return postings;
}

void write_block(const Database& database, const Blocks& blocks, std::int64_t b, const TermStatistics& statistics, int rank) {
  PostingBlock block;
  std::uint32_t before = 0;
  for (const Posting& p : postings_of(database, blocks, b, statistics, block.lengths)) {
    if (block.terms.empty() || block.terms.back() != p.term) block.terms.push_back(p.term), block.offsets.push_back(block.ids.size()), before = 0;
    block.ids.push_back(p.chunk - before), block.frequencies.push_back(p.frequency);
    before = p.chunk;
  }
  block.offsets.push_back(block.ids.size());
  write_tables(blocks.file(b), index_hash(database.settings(), statistics.common), rank, [&](hdf5::TableWriter& file) {
    file.add<std::uint32_t>("tokens", 0, block.terms), file.add<std::uint64_t>("offsets", 0, block.offsets);
    file.add<std::uint32_t>("ids", 0, block.ids), file.add<std::uint8_t>("frequencies", 0, block.frequencies);
    file.add<std::uint32_t>("lengths", 0, block.lengths);
  });
}

// Reads the statistics, and writes them before if they do not exist.
TermStatistics shared_statistics(const fs::path& project, const Database& database, double common, Communicator& world) {
  const Blocks blocks = index_blocks(project, database.settings(), database.size());
  bool exists = false;
  collective_check(world, [&] {
    if (world.rank() == 0) make_folder(index_folder(project));
    std::error_code error;
    exists = fs::exists(index_folder(project) / "statistics.hdf5", error);
  });
  if (world.sum(exists) < world.size()) {
    const ChunkCounts counts = counted_chunks(database, blocks, world);
    collective_check(world, [&] {
      if (world.rank() != 0) return;
      std::uint64_t total = 0;
      for (std::int64_t b = 0; b < blocks.count(); ++b)
        for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) total += row.terms;
      write_statistics(project, database, common, counts, total);
    });
  }
  TermStatistics statistics;
  collective_check(world, [&] {
    statistics = read_statistics(project, database.settings());
    require_same({{"common", fmt::format("{}", statistics.common)}}, {{"common", fmt::format("{}", common)}},
                 index_folder(project) / "statistics.hdf5", "give the same --common, or remove the folder of the index");
    require(statistics.size == std::uint64_t(database.size()), Exit::data, "{}:totals: row 0 is {}, but the database has {} chunks; remove the index",
            (index_folder(project) / "statistics.hdf5").string(), statistics.size, database.size());
  });
  return statistics;
}

}  // namespace

IndexCounts build_index(const fs::path& project, const Database& database, double common, Communicator& world,
                        const std::function<void(const IndexCounts&)>& announce) {
  const TermStatistics statistics = shared_statistics(project, database, common, world);
  const Blocks blocks = index_blocks(project, database.settings(), database.size());
  IndexCounts counts;
  counts.terms = std::int64_t(statistics.terms.size()), counts.blocks = blocks.count();
  for (const std::uint64_t chunks : statistics.chunks)
    if (statistics.is_dropped(chunks)) ++counts.dropped;
    else counts.postings += std::int64_t(chunks);
  if (world.rank() == 0) announce(counts);
  std::int64_t kept = 0;
  collective_check(world, [&] {
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size())
      if (blocks.exists(b)) read_postings(blocks, b, index_hash(database.settings(), common), database), ++kept;
      else write_block(database, blocks, b, statistics, world.rank());
  });
  counts.kept = std::int64_t(world.sum(double(kept)));
  return counts;
}

}  // namespace gyr::retro
