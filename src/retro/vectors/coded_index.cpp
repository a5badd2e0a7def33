// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/coded_index.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/output_file.hpp"
#include "src/data/samples.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/merge.hpp"
#include "src/retro/settings_json.hpp"
#include "src/retro/vectors/flat_shard.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view codes_format = "gyrfalcon retrieval codes 1", recall_format = "gyrfalcon retrieval recall 1";
constexpr const char* codes_remedy = "remove the file and run `gyrfalcon retro index` again";
constexpr std::uint64_t seed = 1234;
constexpr std::int64_t vectors_per_list = 64, smallest_sample = 16'384, most_probes = 1 << 20;
constexpr std::int64_t least_recall_queries = 100, most_recall_queries = 1000;  // 1 % of the chunks within these bounds

fs::path trained_path(const fs::path& project) { return codes_folder(project) / "trained.hdf5"; }
fs::path recall_path(const fs::path& project) { return codes_folder(project) / "recall.json"; }
Blocks code_blocks(const fs::path& project, const Database& database) { return {codes_folder(project), database.size(), database.settings().block}; }

// Vectors of chunks whose ids ascend. Every block is read once.
std::vector<float> vectors_of(const std::vector<std::int64_t>& ids, const Blocks& blocks, const VectorSettings& s) {
  std::vector<float> vectors, block;
  std::int64_t open = -1;
  for (const std::int64_t id : ids) {
    const std::int64_t b = id / blocks.rows(0);
    if (b != open) block = read_vectors(blocks, b, s), open = b;
    const auto row = block.begin() + std::ptrdiff_t((id - blocks.first(b)) * s.width);
    vectors.insert(vectors.end(), row, row + std::ptrdiff_t(s.width));
  }
  return vectors;
}

std::unique_ptr<ListQuantizer> read_trained(const fs::path& project, const VectorSettings& v, const CodeSettings& s) {
  const fs::path path = trained_path(project);
  std::error_code error;
  require(fs::exists(path, error), Exit::missing, "{}: does not exist; `gyrfalcon retro index` makes the missing files of an index", path.string());
  const hdf5::TableReader file = open_tables(path, s.hash());
  std::unique_ptr<ListQuantizer> quantizer;
  try {
    quantizer = read_quantizer(file.read<std::uint8_t>("quantizer"));
  } catch (const Error& problem) {
    if (problem.code != Exit::data) throw;
    fail(Exit::data, "{}:quantizer: {}; {}", file.name(), problem.what(), codes_remedy);
  }
  require(quantizer->width() == v.width, Exit::data, "{}:quantizer: has vectors of {} elements, but those of the project have {}; {}", file.name(),
          quantizer->width(), v.width, codes_remedy);
  return quantizer;
}

// Trains on rank 0 unless an earlier call has.
void train(const fs::path& project, const Database& database, const VectorSettings& v, const CodeSettings& s) {
  std::error_code error;
  if (fs::exists(trained_path(project), error)) return;
  const Blocks blocks = vector_blocks(project, database.settings(), database.size());
  const std::vector<float> sample = vectors_of(drawn_ids(s.sample, database.size(), seed), blocks, v);
  const Codes stored = train_quantizer(s.factory, v.width, sample, seed)->stored();
  write_tables(trained_path(project), s.hash(), 0, [&](hdf5::TableWriter& file) { file.add<std::uint8_t>("quantizer", 0, stored); });
}

ListQuantizer::Encoded read_codes(const Blocks& blocks, std::int64_t b, const CodeSettings& s, const ListQuantizer& quantizer) {
  require(blocks.exists(b), Exit::missing, "{}: does not exist; `gyrfalcon retro index` makes the missing files of an index",
          blocks.file(b).string());
  const hdf5::TableReader file = open_tables(blocks.file(b), s.hash());
  ListQuantizer::Encoded e{file.read<std::uint32_t>("lists"), file.read<std::uint8_t>("codes", quantizer.code_bytes())};
  require(std::int64_t(e.lists.size()) == blocks.rows(b), Exit::data, "{}:lists: has {} rows for {} chunks; {}", file.name(), e.lists.size(),
          blocks.rows(b), codes_remedy);
  require(std::int64_t(e.codes.size()) == blocks.rows(b) * quantizer.code_bytes(), Exit::data, "{}:codes: has {} rows for {} chunks; {}", file.name(),
          std::int64_t(e.codes.size()) / quantizer.code_bytes(), blocks.rows(b), codes_remedy);
  for (std::size_t row = 0; row < e.lists.size(); ++row)
    require(std::int64_t(e.lists[row]) < quantizer.lists(), Exit::data, "{}:lists: row {} is {}, but the index has the lists 0 to {}; {}",
            file.name(), row, e.lists[row], quantizer.lists() - 1, codes_remedy);
  return e;
}

// Makes the missing blocks of this rank. Returns the number of those that exist.
std::int64_t encode(const fs::path& project, const Database& database, const VectorSettings& v, const CodeSettings& s, const Communicator& world) {
  const std::unique_ptr<ListQuantizer> quantizer = read_trained(project, v, s);
  const Blocks blocks = code_blocks(project, database), vectors = vector_blocks(project, database.settings(), database.size());
  std::int64_t kept = 0;
  for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) {
    if (blocks.exists(b)) {
      read_codes(blocks, b, s, *quantizer), ++kept;
      continue;
    }
    const ListQuantizer::Encoded e = quantizer->encode(read_vectors(vectors, b, v));
    write_tables(blocks.file(b), s.hash(), world.rank(), [&](hdf5::TableWriter& file) {
      file.add<std::uint32_t>("lists", 0, e.lists);
      file.add<std::uint8_t>("codes", quantizer->code_bytes(), e.codes);
    });
  }
  return kept;
}

using Results = std::vector<std::vector<Candidate>>;

// Exact nearest chunks among the blocks of this rank. One block at a time is in memory.
Results exact_among(const Blocks& blocks, const VectorSettings& v, std::span<const float> queries, const Communicator& world) {
  Results best(queries.size() / std::size_t(v.width));
  for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) {
    const std::vector<std::uint32_t> none(std::size_t(blocks.rows(b)));
    FlatVectorShard shard(v.width);
    shard.add(blocks.first(b), read_vectors(blocks, b, v), none, none);
    const Results found = shard.search(queries, recall_most + 1);
    for (std::size_t q = 0; q < best.size(); ++q) {
      best[q].insert(best[q].end(), found[q].begin(), found[q].end());
      keep_best(best[q], recall_most + 1);
    }
  }
  return best;
}

std::vector<std::int64_t> neighbours_of(std::vector<Candidate> found, std::int64_t self) {
  std::erase_if(found, [&](const Candidate& c) { return c.id == self; });
  keep_best(found, recall_most);
  std::vector<std::int64_t> ids;
  for (const Candidate& c : found) ids.push_back(c.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// On rank 0.
Recall measured(const Results& exact, const Results& approximate, const std::vector<std::int64_t>& ids) {
  Recall recall{std::int64_t(ids.size()), 0};
  std::int64_t all = 0, common = 0;
  for (std::size_t q = 0; q < exact.size(); ++q) {
    const std::vector<std::int64_t> wanted = neighbours_of(exact[q], ids[q]), found = neighbours_of(approximate[q], ids[q]);
    std::vector<std::int64_t> both;
    std::set_intersection(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(both));
    all += std::int64_t(wanted.size()), common += std::int64_t(both.size());
  }
  recall.share = all > 0 ? double(common) / double(all) : 1;
  return recall;
}

void write_recall(const fs::path& project, const CodeSettings& s, const Recall& recall) {
  OutputFile file(recall_path(project));
  const std::string name = fmt::format("recall_at_{}", recall_most);
  file.append(json_text({{"format", recall_format}, {"index", s.hash()}, {"queries", recall.queries}, {name, recall.share}}, 2) + "\n");
  file.commit();
}

Recall measure_recall(const fs::path& project, const Database& database, const VectorSettings& v, const CodeSettings& s, Communicator& world) {
  const Blocks blocks = vector_blocks(project, database.settings(), database.size());
  const std::int64_t queries = std::min(database.size(), std::clamp(database.size() / 100, least_recall_queries, most_recall_queries));
  const std::vector<std::int64_t> ids = drawn_ids(queries, database.size(), ~seed);
  Results exact, approximate;
  collective_check(world, [&] {
    const std::vector<float> vectors = vectors_of(ids, blocks, v);
    exact = exact_among(blocks, v, vectors, world);
    approximate = open_codes(project, database, v, s, world)->search(vectors, recall_most + 1);
  });
  exact = merged(world, 0, exact, recall_most + 1), approximate = merged(world, 0, approximate, recall_most + 1);
  Recall recall;
  collective_check(world, [&] {
    if (world.rank() != 0) return;
    recall = measured(exact, approximate, ids);
    write_recall(project, s, recall);
  });
  return recall;
}

}  // namespace

NamedValues CodeSettings::values() const {
  return {{"vectors", vectors}, {"index", factory}, {"probes", std::to_string(probes)}, {"sample", std::to_string(sample)}};
}

fs::path codes_folder(const fs::path& project) { return index_folder(project).parent_path() / "faiss"; }

bool has_codes(const fs::path& project) {
  std::error_code error;
  return fs::exists(codes_folder(project) / "config.json", error);
}

CodeSettings code_settings(const std::string& factory, std::int64_t probes, const VectorSettings& v, std::int64_t chunks) {
  require_faiss();
  const QuantizerSize size = size_of_quantizer(factory, v.width);
  require(chunks >= size.least_sample, Exit::config,
          "--index {}: has {} centroids, but the database has {} chunks to train them with; give at most that number of centroids, or --index flat",
          factory, size.least_sample, chunks);
  return {v.hash(), factory, std::min(probes, size.lists), std::min(chunks, std::max(vectors_per_list * size.lists, smallest_sample))};
}

void write_code_settings(const fs::path& project, const CodeSettings& s) {
  OutputFile file(codes_folder(project) / "config.json");
  file.append(json_text({{"format", codes_format},
                         {"vectors", s.vectors},
                         {"index", s.factory},
                         {"probes", s.probes},
                         {"sample", s.sample},
                         {"faiss", faiss_version()}},
                        2) +
              "\n");
  file.commit();
}

CodeSettings read_code_settings(const fs::path& project) {
  CodeSettings s;
  read_config(codes_folder(project) / "config.json", "remove the folder and run `gyrfalcon retro index` again", [&](const Json& json) {
    require_format(json, codes_format);
    s.vectors = sum_in(json, "vectors"), s.factory = json.at("index").get<std::string>();
    s.probes = count_in(json, "probes", 1, most_probes), s.sample = count_in(json, "sample", 1, std::int64_t(1) << 50);
  });
  return s;
}

CodeCounts build_codes(const fs::path& project, const Database& database, const VectorSettings& v, const CodeSettings& s, Communicator& world) {
  CodeCounts counts{code_blocks(project, database).count(), 0, {}};
  collective_check(world, [&] {
    if (world.rank() == 0) train(project, database, v, s);
  });
  std::int64_t kept = 0;
  collective_check(world, [&] { kept = encode(project, database, v, s, world); });
  counts.kept = std::int64_t(world.sum(double(kept)));
  std::error_code error;
  const bool has_recall = world.max(fs::exists(recall_path(project), error)) > 0;
  if (!has_recall) counts.recall = measure_recall(project, database, v, s, world);
  else collective_check(world, [&] { counts.recall = read_recall(project, s); });
  return counts;
}

std::vector<std::int64_t> drawn_ids(std::int64_t count, std::int64_t total, std::uint64_t key) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin_of = [&](std::int64_t part) { return std::int64_t(__int128(part) * total / count); };
    const std::int64_t first = begin_of(i), size = begin_of(i + 1) - first;
    ids.push_back(first + std::int64_t(mixed(mixed(key) ^ std::uint64_t(i)) % std::uint64_t(size)));
  }
  return ids;
}

std::unique_ptr<VectorShard> open_codes(const fs::path& project, const Database& database, const VectorSettings& v, const CodeSettings& s,
                                        Communicator& world) {
  require(s.vectors == v.hash(), Exit::data, "{}: is of vectors with hash {}, but those of the project have {}; {}",
          (codes_folder(project) / "config.json").string(), s.vectors, v.hash(), "remove the folder and run `gyrfalcon retro index` again");
  const Blocks blocks = code_blocks(project, database);
  const std::shared_ptr<const ListQuantizer> quantizer = read_trained(project, v, s);
  auto shard = std::make_unique<CodedShard>(quantizer, s.probes);
  for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size()) {
    std::vector<std::uint32_t> corpora, documents;
    for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) corpora.push_back(row.corpus), documents.push_back(row.document);
    shard->add(blocks.first(b), read_codes(blocks, b, s, *quantizer), corpora, documents);
  }
  return shard;
}

Recall read_recall(const fs::path& project, const CodeSettings& s) {
  Recall recall;
  read_config(recall_path(project), codes_remedy, [&](const Json& json) {
    require_format(json, recall_format);
    require(sum_in(json, "index") == s.hash(), Exit::data, "it is of another index");
    recall.queries = count_in(json, "queries", 1, std::int64_t(1) << 50);
    recall.share = json.at(fmt::format("recall_at_{}", recall_most)).get<double>();
    require(recall.share >= 0 && recall.share <= 1, Exit::data, "the recall is not between 0 and 1");
  });
  return recall;
}

}  // namespace gyr::retro
