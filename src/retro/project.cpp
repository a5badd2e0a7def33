// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/project.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/output_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/data/dataset.hpp"
#include "src/retro/settings_json.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view project_format = "gyrfalcon retrieval project 1";

std::string listed(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::string corpus_name(std::size_t corpus) { return fmt::format("corpus {}:", corpus); }

std::vector<std::int32_t> ids_in(const Json& json) {
  std::vector<std::int32_t> ids;
  for (const Json& id : json) {
    require(id.is_number_integer() && id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < TokenFile::max_vocab, Exit::data,
            "'special' has an element that is not a token id");
    ids.push_back(id.get<std::int32_t>());
  }
  require(std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end(), Exit::data, "'special' does not ascend");
  return ids;
}

ProjectSettings settings_in(const Json& json) {
  ProjectSettings s;
  for (const auto& [key, value] : json.items())
    require(!key.starts_with("retro_"), Exit::data,
            "'{}' is a key of Megatron-LM, whose projects only `gyrfalcon train` reads, with retro.neighbors: make one of the same token files with "
            "`gyrfalcon retro build-db`",
            printable_line(key));
  require_format(json, project_format);
  s.chunk = count_in(json, "chunk", 1, most_chunk), s.block = count_in(json, "block", 1, most_block);
  const std::string database = json.at("database").get<std::string>();
  require(database == "all" || database == "train", Exit::data, "'database' is neither train nor all");
  s.all = database == "all";
  s.split = json.at("split").get<std::string>();
  require(s.all ? s.split.empty() : split_fractions(s.split).has_value(), Exit::data, "'split' is not valid");
  if (!json.at("end").is_null()) s.end = std::int32_t(count_in(json, "end", 0, TokenFile::max_vocab - 1));
  s.special = ids_in(json.at("special"));
  const Json& t = json.at("tokenizer");
  s.tokenizer = {t.at("file").get<std::string>(), count_in(t, "bytes", 0, std::int64_t(1) << 50), sum_in(t, "xxh3"),
                 count_in(t, "vocab_size", 0, TokenFile::max_vocab)};
  s.corpora = marks_in(json.at("corpora"));
  return s;
}

}  // namespace

CorpusMark corpus_mark(const TokenFile& file) {
  std::error_code error;
  CorpusMark mark;
  mark.prefix = fs::absolute(file.prefix(), error).lexically_normal();
  mark.documents = file.sequences(), mark.tokens = file.tokens();
  mark.bytes = file.tokens() * bytes_of(file.type());
  mark.index_sum = hex(SummedFile(index_path(file.prefix())).sum());
  if (const auto fingerprint = fingerprint_of(file.prefix())) mark.content = fingerprint->content;
  return mark;
}

NamedValues values_of(const CorpusMark& corpus, const std::string& name) {
  return {{name + " documents", std::to_string(corpus.documents)},
          {name + " tokens", std::to_string(corpus.tokens)},
          {name + " bytes of .bin", std::to_string(corpus.bytes)},
          {name + " XXH3 of .idx", corpus.index_sum},
          {name + " checksum of the content", corpus.content}};
}

NamedValues ProjectSettings::values() const {
  NamedValues values{{"chunk", std::to_string(chunk)},
                     {"block", std::to_string(block)},
                     {"database", all ? "all" : "train"},
                     {"split", split},
                     {"tokenizer", tokenizer.sum.empty() ? "none" : fmt::format("{} bytes, XXH3 {}", tokenizer.bytes, tokenizer.sum)},
                     {"end token", end ? std::to_string(*end) : "none"},
                     {"special tokens", listed(special)},
                     {"number of corpora", std::to_string(corpora.size())}};
  for (std::size_t c = 0; c < corpora.size(); ++c)
    for (auto& value : values_of(corpora[c], corpus_name(c))) values.push_back(std::move(value));
  return values;
}

bool ProjectSettings::is_special(std::int32_t token) const { return std::binary_search(special.begin(), special.end(), token); }

SequenceRange ProjectSettings::documents(std::size_t corpus) const {
  const std::int64_t documents = corpora[corpus].documents;
  return all ? SequenceRange{0, documents} : split_range(split, Split::train, documents);
}

std::string ProjectSettings::folder_of(std::size_t corpus) const {
  std::string name = corpora[corpus].prefix.filename().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return fmt::format("{}-{}", corpus, name.substr(0, 100));
}

fs::path config_path(const fs::path& project) { return project / "config.json"; }
fs::path database_folder(const fs::path& project) { return project / "db"; }
fs::path merged_path(const fs::path& project) { return database_folder(project) / "merged" / "train.hdf5"; }
fs::path index_folder(const fs::path& project) { return project / "index" / "bm25"; }
fs::path query_folder(const fs::path& project) { return project / "query"; }

std::string text_of(const ProjectSettings& s) {
  return json_text({{"format", project_format},
                    {"chunk", s.chunk},
                    {"block", s.block},
                    {"database", s.all ? "all" : "train"},
                    {"split", s.split},
                    {"end", s.end ? Json(*s.end) : Json()},
                    {"special", s.special},
                    {"tokenizer",
                     {{"file", s.tokenizer.file}, {"bytes", s.tokenizer.bytes}, {"xxh3", s.tokenizer.sum}, {"vocab_size", s.tokenizer.tokens}}},
                    {"corpora", json_of(s.corpora)}},
                   2) +
         "\n";
}

void write_settings(const fs::path& project, const ProjectSettings& s) {
  OutputFile file(config_path(project));
  file.append(text_of(s));
  file.commit();
}

ProjectSettings read_settings(const fs::path& project) {
  const fs::path path = config_path(project);
  std::error_code error;
  require(fs::exists(path, error), Exit::missing, "{}: does not exist; `gyrfalcon retro build-db {} --data PREFIX` makes a project", path.string(),
          project.string());
  ProjectSettings settings;
  read_config(path, "restore it, or make the project again", [&](const Json& json) { settings = settings_in(json); });
  return settings;
}

Corpora::Corpora(const ProjectSettings& s) {
  for (const CorpusMark& corpus : s.corpora) {
    std::error_code error;
    require(fs::exists(index_path(corpus.prefix), error), Exit::missing,
            "{}: does not exist, and config.json of the project names it; restore it, or run `gyrfalcon retro build-db` with the new place of all "
            "token files and the other options of its first call",
            index_path(corpus.prefix).string());
    files_.push_back(std::make_unique<TokenFile>(corpus.prefix));
    masks_.push_back(LossMask::next_to(*files_.back()));
    require(files_.back()->sequences() <= std::int64_t(std::uint32_t(-1)), Exit::data,
            "{}: has {} documents, but a database counts those of a corpus in 32 bits; divide the corpus", corpus.prefix.string(),
            files_.back()->sequences());
  }
}

std::vector<std::int32_t> Corpora::tokens(std::size_t corpus, std::int64_t document) const {
  std::vector<std::int32_t> tokens(std::size_t(files_[corpus]->length(document)));
  files_[corpus]->read(document, 0, tokens);
  return tokens;
}

std::vector<std::uint8_t> Corpora::targets(std::size_t corpus, std::int64_t document) const {
  std::vector<std::uint8_t> targets(std::size_t(files_[corpus]->length(document)), 1);
  if (masks_[corpus]) masks_[corpus]->read(document, 0, targets);
  return targets;
}

void require_unchanged(const CorpusMark& mark, const TokenFile& file, const fs::path& config) {
  try {
    require_same(values_of(mark, mark.prefix.string() + ":"), values_of(corpus_mark(file), mark.prefix.string() + ":"), config,
                 "the token files have changed: restore them, or make a new project");
  } catch (const Error& changed) {
    throw Error(Exit::data, changed.what());
  }
}

}  // namespace gyr::retro
