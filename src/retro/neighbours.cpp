// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/neighbours.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

// Queries share the lists that they read. The number of their candidates, 24 bytes each, bounds the memory.
std::int64_t queries_at_once(const QuerySettings& s) { return std::clamp<std::int64_t>((std::int64_t(1) << 20) / s.candidates, 1, 2048); }

void check_rows(const NeighbourRows& rows, const QuerySettings& s, std::int64_t size, const std::string& name) {
  const std::int64_t saved = s.saved;
  const char* const remedy = "remove the file and run `gyrfalcon retro query` again";
  require(rows.scores.size() == rows.ids.size(), Exit::data, "{}:scores: has {} elements for {} neighbours; {}", name, rows.scores.size(),
          rows.ids.size(), remedy);
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    const std::int64_t row = std::int64_t(i) / saved, id = rows.ids[i];
    require(id >= -1 && id < size, Exit::data, "{}:neighbors: row {} names chunk {}, but the database has the chunks 0 to {}; {}", name, row, id,
            size - 1, remedy);
    require(id == -1 || std::int64_t(i) % saved == 0 || rows.ids[i - 1] != -1, Exit::data, "{}:neighbors: row {} has chunk {} after -1; {}", name,
            row, id, remedy);
    const float score = rows.scores[i];
    const bool fits = s.vectors ? score <= 0 : score > 0;
    require(std::isfinite(score) && (id == -1 ? score == 0 : fits), Exit::data, "{}:scores: row {} has {} for neighbour {}; {}", name, row, score, id,
            remedy);
  }
}

std::int64_t chunks_without_two(const NeighbourRows& rows, std::int64_t saved) {
  std::int64_t count = 0;
  for (std::size_t row = 0; row < rows.ids.size(); row += std::size_t(saved))
    count += rows.ids[row + std::size_t(std::min<std::int64_t>(1, saved - 1))] == -1;
  return count;
}

}  // namespace

Blocks neighbour_blocks(const fs::path& folder, const QuerySettings& s, std::int64_t chunks) { return {folder, chunks, s.block}; }

NeighbourRows read_neighbours(const Blocks& blocks, std::int64_t b, const QuerySettings& s, std::int64_t size) {
  const hdf5::TableReader file = open_tables(blocks.file(b), s.hash());
  NeighbourRows rows{file.read<std::int64_t>("neighbors", s.saved), file.read<float>("scores", s.saved)};
  require(std::int64_t(rows.ids.size()) == blocks.rows(b) * s.saved, Exit::data, "{}:neighbors: has {} rows for {} queries; remove the file",
          file.name(), std::int64_t(rows.ids.size()) / s.saved, blocks.rows(b));
  check_rows(rows, s, size, file.name());
  return rows;
}

NeighbourRows find_neighbours(const QuerySamples& samples, const QuerySettings& s, ChunkSearch& search, std::int64_t first, std::int64_t last,
                              int owner, bool owns) {
  const std::int64_t per_sample = s.chunks_per_sample();
  std::vector<std::vector<std::int32_t>> queries, continuations;
  std::vector<std::vector<Place>> documents;
  for (std::int64_t number = first / per_sample; number * per_sample < last; ++number) {
    const QuerySamples::Sample sample = samples.sample(number);
    for (std::int64_t c = std::max<std::int64_t>(0, first - number * per_sample); c < std::min(per_sample, last - number * per_sample); ++c) {
      queries.push_back(sample.chunks[std::size_t(c)]);
      if (owns) documents.push_back(sample.documents), continuations.push_back(sample.continuations[std::size_t(c)]);
    }
  }
  NeighbourRows rows;
  const auto found = search.nearest(queries, s.candidates, owner);
  for (std::size_t q = 0; q < found.size(); ++q) {
    const auto is_copy = [&](std::int64_t id) { return share_a_run(continuations[q], search.database().passage(id), s.overlap); };
    std::vector<Candidate> kept = s.overlap > 0 ? filtered(found[q], documents[q], s.saved, is_copy) : filtered(found[q], documents[q], s.saved);
    kept.resize(std::size_t(s.saved), {0, -1, 0, 0});
    for (const Candidate& c : kept) rows.ids.push_back(c.id), rows.scores.push_back(float(c.score));
  }
  return rows;
}

NeighbourCounts build_neighbours(const fs::path& folder, const QuerySettings& s, const QuerySamples& samples, ChunkSearch& search, std::int64_t size,
                                 Communicator& world, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const Blocks blocks = neighbour_blocks(folder, s, samples.chunks());
  NeighbourCounts counts{samples.chunks(), 0, blocks.count(), 0};
  std::int64_t without_two = 0, kept = 0;
  for (std::int64_t b = 0; b < blocks.count(); ++b) {
    const int owner = int(b % world.size());
    const bool owns = owner == world.rank();
    bool exists = false;
    collective_check(world, [&] {
      exists = owns && blocks.exists(b);
      if (exists) without_two += chunks_without_two(read_neighbours(blocks, b, s, size), s.saved), ++kept;
    });
    if (world.max(exists) > 0) continue;
    NeighbourRows rows;
    for (std::int64_t first = blocks.first(b); first < blocks.last(b); first += queries_at_once(s)) {
      const NeighbourRows part = find_neighbours(samples, s, search, first, std::min(blocks.last(b), first + queries_at_once(s)), owner, owns);
      rows.ids.insert(rows.ids.end(), part.ids.begin(), part.ids.end());
      rows.scores.insert(rows.scores.end(), part.scores.begin(), part.scores.end());
      if (world.rank() == 0) progress(first, samples.chunks());
    }
    without_two += chunks_without_two(rows, s.saved);
    collective_check(world, [&] {
      if (!owns) return;
      write_tables(blocks.file(b), s.hash(), world.rank(), [&](hdf5::TableWriter& file) {
        file.add<std::int64_t>("neighbors", s.saved, rows.ids);
        file.add<float>("scores", s.saved, rows.scores);
      });
    });
  }
  counts.without_two = std::int64_t(world.sum(double(without_two))), counts.kept = std::int64_t(world.sum(double(kept)));
  return counts;
}

}  // namespace gyr::retro
