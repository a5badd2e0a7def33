// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/vector_search.hpp"

#include <algorithm>

#include "src/parallel/collective_check.hpp"
#include "src/retro/index.hpp"
#include "src/retro/merge.hpp"

namespace gyr::retro {

VectorSearch::VectorSearch(const std::filesystem::path& project, const Database& database, const VectorSettings& settings, EncodeText encode,
                           Communicator& world)
    : ChunkSearch(database), settings_(settings), encode_(std::move(encode)), world_(world), shard_(settings.width) {
  const Blocks blocks = vector_blocks(project, database.settings(), database.size());
  collective_check(world, [&] {
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) {
      std::vector<std::uint32_t> corpora, documents;
      for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) corpora.push_back(row.corpus), documents.push_back(row.document);
      shard_.add(blocks.first(b), read_vectors(blocks, b, settings_), std::move(corpora), std::move(documents));
    }
  });
}

// Rank r encodes the texts r, r + ranks, ... Doubles represent the floats of all ranks exactly.
VectorSearch::Encoded VectorSearch::encoded(const std::vector<std::vector<std::int32_t>>& texts) {
  const auto ranks = std::size_t(world_.size()), rank = std::size_t(world_.rank()), width = std::size_t(settings_.width);
  const std::size_t each = (texts.size() + ranks - 1) / ranks, row = width + 1;
  std::vector<double> mine(each * row);  // of each text: 1 if it has tokens, and its vector
  collective_check(world_, [&] {
    for (std::size_t i = 0; i < each && i * ranks + rank < texts.size(); ++i) {
      const std::vector<float> vector = encode_(texts[i * ranks + rank]);
      mine[i * row] = !vector.empty();
      std::copy(vector.begin(), vector.end(), mine.begin() + std::ptrdiff_t(i * row + 1));
    }
  });
  const std::vector<double> all = world_.gather(mine);
  Encoded e;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const auto from = all.begin() + std::ptrdiff_t((t % ranks * each + t / ranks) * row);
    e.has_tokens.push_back(*from > 0);
    for (std::size_t i = 0; i < width; ++i) e.vectors.push_back(float(from[std::ptrdiff_t(i) + 1]));
  }
  return e;
}

std::vector<std::vector<Candidate>> VectorSearch::nearest(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t most, int owner) {
  const Encoded e = encoded(texts);
  std::vector<std::vector<Candidate>> found = shard_.search(e.vectors, most);
  for (std::size_t t = 0; t < texts.size(); ++t)
    if (!e.has_tokens[t]) found[t].clear();
  return merged(world_, owner, found, most);
}

IndexMark index_mark_of(const std::filesystem::path& project, const ProjectSettings& s) {
  if (has_vectors(project)) return {read_vector_settings(project).hash(), true};
  return {index_hash(s, read_statistics(project, s).common)};
}

}  // namespace gyr::retro
