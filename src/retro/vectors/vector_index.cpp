// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/vectors/vector_index.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "src/base/output_file.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/settings_json.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view vectors_format = "gyrfalcon retrieval vectors 1";
constexpr const char* vectors_remedy = "remove the file and run `gyrfalcon retro index` again";

std::vector<float> encoded(const Database& database, const Blocks& blocks, std::int64_t b, std::int64_t width, const EncodeText& encode,
                           const std::function<void()>& done) {
  std::vector<float> vectors;
  for (const ChunkRow& row : database.rows(blocks.first(b), blocks.rows(b))) {
    std::vector<float> vector = encode(database.tokens(row));
    vector.resize(std::size_t(width));  // a text without tokens has the vector 0
    require(std::all_of(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); }), Exit::numeric,
            "chunk {}: its vector is not finite; choose an encoder with finite weights",
            blocks.first(b) + std::int64_t(vectors.size()) / std::max<std::int64_t>(1, width));
    vectors.insert(vectors.end(), vector.begin(), vector.end());
    done();
  }
  return vectors;
}

}  // namespace

NamedValues VectorSettings::values() const {
  return {{"project", project},
          {"retriever", "flat"},
          {"checksum of the encoder", encoder_sum},
          {"width", std::to_string(width)},
          {"most tokens", std::to_string(most_encoder_tokens)}};
}

fs::path vectors_folder(const fs::path& project) { return index_folder(project).parent_path() / "flat"; }

bool has_vectors(const fs::path& project) {
  std::error_code error;
  return fs::exists(vectors_folder(project) / "config.json", error);
}

void write_vector_settings(const fs::path& project, const VectorSettings& s) {
  OutputFile file(vectors_folder(project) / "config.json");
  file.append(json_text({{"format", vectors_format},
                         {"project", s.project},
                         {"encoder", {{"path", s.encoder.string()}, {"xxh3", s.encoder_sum}}},
                         {"width", s.width}},
                        2) +
              "\n");
  file.commit();
}

VectorSettings read_vector_settings(const fs::path& project) {
  VectorSettings s;
  read_config(vectors_folder(project) / "config.json", "remove the folder and run `gyrfalcon retro index` again", [&](const Json& json) {
    require_format(json, vectors_format);
    s.project = sum_in(json, "project");
    const Json& encoder = json.at("encoder");
    s.encoder = encoder.at("path").get<std::string>(), s.encoder_sum = sum_in(encoder, "xxh3");
    s.width = count_in(json, "width", 1, most_width);
  });
  return s;
}

Blocks vector_blocks(const fs::path& project, const ProjectSettings& s, std::int64_t chunks) { return {vectors_folder(project), chunks, s.block}; }

std::vector<float> read_vectors(const Blocks& blocks, std::int64_t b, const VectorSettings& s) {
  require(blocks.exists(b), Exit::missing, "{}: does not exist; `gyrfalcon retro index` makes the missing files of an index",
          blocks.file(b).string());
  const hdf5::TableReader file = open_tables(blocks.file(b), s.hash());
  std::vector<float> vectors = file.read<float>("vectors", s.width);
  require(std::int64_t(vectors.size()) == blocks.rows(b) * s.width, Exit::data, "{}:vectors: has {} rows for {} chunks; {}", file.name(),
          std::int64_t(vectors.size()) / s.width, blocks.rows(b), vectors_remedy);
  const auto bad = std::find_if(vectors.begin(), vectors.end(), [](float x) { return !std::isfinite(x); });
  require(bad == vectors.end(), Exit::data, "{}:vectors: row {} has {}; {}", file.name(), (bad - vectors.begin()) / s.width,
          bad == vectors.end() ? 0 : *bad, vectors_remedy);
  return vectors;
}

VectorCounts build_vectors(const fs::path& project, const Database& database, const VectorSettings& s, const EncodeText& encode, Communicator& world,
                           const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const Blocks blocks = vector_blocks(project, database.settings(), database.size());
  VectorCounts counts{blocks.count(), 0};
  std::int64_t kept = 0;
  collective_check(world, [&] {
    std::int64_t done = 0, all = 0;
    std::vector<std::int64_t> missing;
    for (std::int64_t b = world.rank(); b < blocks.count(); b += world.size())
      if (blocks.exists(b)) read_vectors(blocks, b, s), ++kept;
      else missing.push_back(b), all += blocks.rows(b);
    for (const std::int64_t b : missing) {
      const std::vector<float> vectors = encoded(database, blocks, b, s.width, encode, [&] {
        if (++done; world.rank() == 0) progress(done, all);
      });
      write_tables(blocks.file(b), s.hash(), world.rank(), [&](hdf5::TableWriter& file) { file.add<float>("vectors", s.width, vectors); });
    }
  });
  counts.kept = std::int64_t(world.sum(double(kept)));
  return counts;
}

}  // namespace gyr::retro
