// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/megatron_project.hpp"

#include <algorithm>
#include <charconv>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/json_text.hpp"
#include "src/retro/settings_json.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* restore = "restore the project of Megatron-LM";

std::optional<std::int64_t> optional_count(const Json& json, const char* key, std::int64_t most) {
  if (!json.contains(key) || json.at(key).is_null()) return std::nullopt;
  return count_in(json, key, 0, most);
}

// The list of corpora is an array, which read_config does not take.
std::vector<CorpusMark> corpora_of(const fs::path& project) {
  const fs::path file = database_folder(project) / "indexed_dataset_infos.json";
  std::vector<CorpusMark> corpora;
  read_json(file, restore, [&](const Json& list) {
    require(list.is_array() && !list.empty(), Exit::data, "it is no list of corpora, or empty");
    for (const Json& info : list) {
      CorpusMark corpus;
      corpus.prefix = project / "data" / info.at("prefix").get<std::string>();
      corpus.documents = count_in(info, "n_docs", 0, std::int64_t(1) << 32);
      corpora.push_back(corpus);
    }
  });
  for (const CorpusMark& corpus : corpora) {
    std::error_code error;
    require(fs::exists(index_path(corpus.prefix), error), Exit::missing, "{}: does not exist, and {} names it; put the token files there",
            index_path(corpus.prefix).string(), file.string());
    const std::int64_t documents = TokenFile(corpus.prefix).sequences();
    require(documents == corpus.documents, Exit::data, "{}: has {} documents, but {} has {}; restore the token files of the project",
            index_path(corpus.prefix).string(), documents, file.string(), corpus.documents);
  }
  return corpora;
}

struct NamedBlock {
  fs::path file;
  std::int64_t first = -1, last = -1;
  std::size_t digits = 0;
};

// START and END of a name START-END.hdf5, with the same number of digits.
NamedBlock named_block(const fs::path& file) {
  const std::string name = file.stem().string();
  const std::size_t dash = name.find('-');
  NamedBlock block{file};
  const auto number = [](std::string_view digits, std::int64_t& n) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    return error == std::errc() && end == digits.data() + digits.size() && n >= 0;
  };
  const bool sound = dash != std::string::npos && number(std::string_view(name).substr(0, dash), block.first) &&
                     number(std::string_view(name).substr(dash + 1), block.last) && block.first < block.last && name.size() == 2 * dash + 1;
  require(sound, Exit::data, "{}: is no name of a block of neighbours, START-END.hdf5; remove the file", file.string());
  block.digits = dash;
  return block;
}

std::vector<NamedBlock> named_blocks(const fs::path& folder) {
  std::vector<NamedBlock> blocks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".hdf5") blocks.push_back(named_block(entry.path()));
  require(!blocks.empty(), Exit::missing, "{}: has no block files of neighbours; name PROJECT/query/FOLDER of a project of Megatron-LM",
          folder.string());
  std::sort(blocks.begin(), blocks.end(), [](const NamedBlock& a, const NamedBlock& b) { return a.first < b.first; });
  return blocks;
}

}  // namespace

bool is_megatron_project(const fs::path& project) {
  std::error_code error;
  if (!fs::exists(config_path(project), error)) return false;
  bool megatron = false;
  read_json(config_path(project), restore, [&](const Json& json) {
    for (const auto& entry : json.items()) megatron = megatron || (json.is_object() && entry.key().starts_with("retro_"));
  });
  return megatron;
}

MegatronSettings read_megatron_project(const fs::path& project) {
  MegatronSettings s;
  s.project.foreign = true;
  read_config(config_path(project), restore, [&](const Json& json) {
    s.project.chunk = count_in(json, "retro_gpt_chunk_length", 1, most_chunk);
    s.seq_length = optional_count(json, "retro_gpt_seq_length", std::int64_t(1) << 30);
    s.seed = optional_count(json, "retro_gpt_seed", std::int64_t(1) << 60);
    if (json.contains("retro_gpt_split")) s.split = json.at("retro_gpt_split").get<std::string>();
  });
  s.project.corpora = corpora_of(project);
  return s;
}

MegatronNeighbours megatron_neighbours(const fs::path& folder) {
  const std::vector<NamedBlock> blocks = named_blocks(folder);
  const std::int64_t size = blocks.front().last - blocks.front().first;
  std::int64_t rows = 0, saved = 0;
  for (const NamedBlock& block : blocks) {
    const bool last = &block == &blocks.back();
    require(block.first == rows && block.digits == blocks.front().digits && (last ? block.last - block.first <= size : block.last == rows + size),
            Exit::data, "{}: a block of the rows {} to {} is absent before it; {}", block.file.string(), rows, std::max(rows, block.first), restore);
    const hdf5::TableReader file(block.file);
    if (saved == 0) saved = file.columns("neighbors");
    const std::int64_t there = file.rows<std::int64_t>("neighbors", saved);
    require(there == block.last - block.first, Exit::data, "{}:neighbors: has {} rows, but its name has the rows {} to {}; {}", file.name(), there,
            block.first, block.last, restore);
    rows = block.last;
  }
  return {{folder, rows, size, blocks.front().digits}, saved};
}

}  // namespace gyr::retro
