// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/retriever.hpp"

#include <cstring>

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr::retro {

namespace {

static_assert(std::is_trivially_copyable_v<Candidate> && sizeof(Candidate) == 24);

// Results of all queries as bytes: the number of candidates of a query, then the candidates.
void append(std::string& bytes, const std::vector<Candidate>& found) {
  const std::uint64_t count = found.size();
  bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
  bytes.append(reinterpret_cast<const char*>(found.data()), count * sizeof(Candidate));
}

void merge(const std::string& bytes, std::vector<std::vector<Candidate>>& results) {
  std::size_t at = 0;
  for (std::vector<Candidate>& result : results) {
    std::uint64_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof count);
    const std::size_t before = result.size();
    result.resize(before + count);
    std::memcpy(result.data() + before, bytes.data() + at + sizeof count, count * sizeof(Candidate));
    at += sizeof count + count * sizeof(Candidate);
  }
}

void transfer(Communicator& world, int owner, const std::string& mine, const std::function<void(const std::string&)>& visit) {
  const double length = double(mine.size());
  const std::vector<double> lengths = world.gather({&length, 1});
  Transport& transport = world.transport();
  if (world.rank() != owner) return Event(&transport, transport.send(mine.data(), Index(mine.size()), DType::u8, owner, 0)).host_wait();
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string text(rank == owner ? 0 : std::size_t(lengths[std::size_t(rank)]), '\0');
    if (rank != owner) Event(&transport, transport.receive(text.data(), Index(text.size()), DType::u8, rank, 0)).host_wait();
    visit(rank == owner ? mine : text);
  }
}

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
    : world_(world), statistics_(checked_statistics(project, database, world)), shard_(statistics_) {
  const Blocks blocks = index_blocks(project, database.settings(), database.size());
  const std::string hash = index_hash(database.settings(), statistics_.common);
  collective_check(world, [&] {
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) shard_.add(read_postings(blocks, b, hash, database));
  });
}

std::vector<std::vector<Candidate>> Retriever::search(const std::vector<std::vector<std::int32_t>>& queries, std::int64_t most, int owner) {
  std::string mine;
  for (const std::vector<Candidate>& found : shard_.search(queries, most)) append(mine, found);
  std::vector<std::vector<Candidate>> results(world_.rank() == owner ? queries.size() : 0);
  if (world_.size() == 1) merge(mine, results);
  else transfer(world_, owner, mine, [&](const std::string& bytes) { merge(bytes, results); });
  for (std::vector<Candidate>& result : results) keep_best(result, most);
  return results;
}

}  // namespace gyr::retro
