// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/merge.hpp"

#include <cstring>
#include <functional>
#include <string>

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

}  // namespace

std::vector<std::vector<Candidate>> merged(Communicator& world, int owner, const std::vector<std::vector<Candidate>>& mine, std::int64_t most) {
  std::string bytes;
  for (const std::vector<Candidate>& found : mine) append(bytes, found);
  std::vector<std::vector<Candidate>> results(world.rank() == owner ? mine.size() : 0);
  if (world.size() == 1) merge(bytes, results);
  else transfer(world, owner, bytes, [&](const std::string& of_rank) { merge(of_rank, results); });
  for (std::vector<Candidate>& result : results) keep_best(result, most);
  return results;
}

}  // namespace gyr::retro
