// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/retriever.hpp"

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/cut.hpp"
#include "src/retro/merge.hpp"

namespace gyr::retro {

namespace {

TermStatistics checked_statistics(const std::filesystem::path& project, const Database& database, Communicator& world) {
  TermStatistics statistics;
  collective_check(world, [&] {
    statistics = read_statistics(project, database.settings());
    require(statistics.size == std::uint64_t(database.size()), Exit::data,
            "{}: the index is of {} chunks, but the database has {}; remove the folder and run `gyrfalcon retro index` again",
            index_folder(project).string(), statistics.size, database.size());
  });
  return statistics;
}

}  // namespace

Retriever::Retriever(const std::filesystem::path& project, const Database& database, Communicator& world)
    : ChunkSearch(database), world_(world), statistics_(checked_statistics(project, database, world)), shard_(statistics_) {
  const Blocks blocks = index_blocks(project, database.settings(), database.size());
  const std::string hash = index_hash(database.settings(), statistics_.common);
  collective_check(world, [&] {
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) shard_.add(read_postings(blocks, b, hash, database));
  });
}

std::vector<std::vector<Candidate>> Retriever::search(const std::vector<std::vector<std::int32_t>>& queries, std::int64_t most, int owner) {
  return merged(world_, owner, shard_.search(queries, most), most);
}

std::vector<std::vector<Candidate>> Retriever::nearest(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t most, int owner) {
  std::vector<std::vector<std::int32_t>> queries;
  for (const std::vector<std::int32_t>& text : texts) queries.push_back(distinct_terms_of(database().settings(), text));
  return search(queries, most, owner);
}

}  // namespace gyr::retro
