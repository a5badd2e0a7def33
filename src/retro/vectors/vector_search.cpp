// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/vector_search.hpp"

#include <algorithm>

#include "kernels/base/printable.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/index.hpp"
#include "src/retro/merge.hpp"
#include "src/retro/vectors/flat_shard.hpp"

namespace gyr::retro {

namespace {

std::unique_ptr<VectorShard> open_vectors(const std::filesystem::path& project, const Database& database, const VectorSettings& s,
                                          Communicator& world) {
  const Blocks blocks = vector_blocks(project, database.settings(), database.size());
  auto shard = std::make_unique<FlatVectorShard>(s.width);
  for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) {
    std::vector<std::uint32_t> corpora, documents;
    for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) corpora.push_back(row.corpus), documents.push_back(row.document);
    shard->add(blocks.first(b), read_vectors(blocks, b, s), std::move(corpora), std::move(documents));
  }
  return shard;
}

}  // namespace

VectorSearch::VectorSearch(const std::filesystem::path& project, const Database& database, const VectorSettings& settings, EncodeText encode,
                           Communicator& world)
    : ChunkSearch(database), settings_(settings), encode_(std::move(encode)), world_(world), index_hash_(settings.hash()) {
  collective_check(world, [&] {
    if (!has_codes(project)) return void(shard_ = open_vectors(project, database, settings_, world));
    const CodeSettings codes = read_code_settings(project);
    index_hash_ = codes.hash(), shard_ = open_codes(project, database, settings_, codes, world);
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
  std::vector<std::vector<Candidate>> found = shard_->search(e.vectors, most);
  for (std::size_t t = 0; t < texts.size(); ++t)
    if (!e.has_tokens[t]) found[t].clear();
  return merged(world_, owner, found, most);
}

IndexMark index_mark_of(const std::filesystem::path& project, const ProjectSettings& s) {
  if (has_codes(project)) return {read_code_settings(project).hash(), true};
  if (has_vectors(project)) return {read_vector_settings(project).hash(), true};
  return {index_hash(s, read_statistics(project, s).common)};
}

std::string vectors_text(const std::filesystem::path& project) {
  std::error_code error;
  if (has_codes(project)) {
    const CodeSettings codes = read_code_settings(project);
    const std::string index = "vectors of an encoder, " + printable_line(codes.factory);
    if (!std::filesystem::exists(codes_folder(project) / "recall.json", error)) return index + ", incomplete: gyrfalcon retro index";
    const Recall recall = read_recall(project, codes);
    return fmt::format("{} with {} probes, recall@{} {:.4f} by {} queries", index, codes.probes, recall_most, recall.share, recall.queries);
  }
  return std::filesystem::exists(vectors_folder(project), error) ? "vectors of an encoder, in index/flat" : "";
}

}  // namespace gyr::retro
