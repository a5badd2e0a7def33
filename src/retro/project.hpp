// SPDX-License-Identifier: BSD-3-Clause
// A retrieval project: a folder with config.json, the database (db/), the index (index/) and neighbours (query/).
// config.json holds the settings of the database and the marks of the corpora that it was cut from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/fingerprint.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/samples.hpp"
#include "src/retro/settings.hpp"

namespace gyr::retro {

inline constexpr std::int64_t most_chunk = 4096, most_block = std::int64_t(1) << 30;  // tokens of a chunk; rows of a block file

// Identifies the content of a corpus.
struct CorpusMark {
  std::filesystem::path prefix;                       // absolute
  std::int64_t documents = 0, tokens = 0, bytes = 0;  // documents are sequences of the token file; bytes of PREFIX.bin
  std::string index_sum;                              // XXH3 of PREFIX.idx
  std::string content;                                // checksum in PREFIX.json; empty: there is no such file
};
// Reads PREFIX.idx completely. Errors of TokenFile.
CorpusMark corpus_mark(const TokenFile& file);
// All members but the prefix, with names that begin with `name`.
NamedValues values_of(const CorpusMark&, const std::string& name);

struct ProjectSettings {
  std::int64_t chunk = 64;            // m: tokens of a chunk
  std::int64_t block = 100'000;       // rows of a block file: documents in db/, chunks in index/ and query/
  bool all = false;                   // true: all documents enter the database; false: those of the training split
  std::string split = "949,50,1";     // proportions of train, validation and test; not used if `all`
  std::optional<std::int32_t> end;    // token that ends a document, which is no part of its last chunk
  std::vector<std::int32_t> special;  // ids that a retriever ignores, ascending
  TokenizerMark tokenizer;            // its members are empty if no tokenizer is known
  std::vector<CorpusMark> corpora;
  bool foreign = false;  // a project of Megatron-LM (megatron_project.hpp), whose files name no settings

  NamedValues values() const;  // all settings, except places of files
  std::string hash() const { return hash_of(values()); }
  bool is_special(std::int32_t token) const;
  // Documents of a corpus that enter the database.
  SequenceRange documents(std::size_t corpus) const;
  // Folder of a corpus below db/, such as "0-text".
  std::string folder_of(std::size_t corpus) const;
};

// Paths inside a project.
std::filesystem::path config_path(const std::filesystem::path& project);
std::filesystem::path database_folder(const std::filesystem::path& project);
std::filesystem::path merged_path(const std::filesystem::path& project);
std::filesystem::path index_folder(const std::filesystem::path& project);
std::filesystem::path query_folder(const std::filesystem::path& project);

std::string text_of(const ProjectSettings&);
void write_settings(const std::filesystem::path& project, const ProjectSettings&);
// Exit::missing if there is no config.json. Exit::data if it is damaged.
ProjectSettings read_settings(const std::filesystem::path& project);

// The corpora of a project, opened for reading.
class Corpora {
 public:
  explicit Corpora(const ProjectSettings&);  // errors of TokenFile and LossMask

  std::size_t size() const { return files_.size(); }
  const TokenFile& file(std::size_t corpus) const { return *files_[corpus]; }
  // Tokens of a document, and 1 for each target token of the loss mask.
  std::vector<std::int32_t> tokens(std::size_t corpus, std::int64_t document) const;
  std::vector<std::uint8_t> targets(std::size_t corpus, std::int64_t document) const;

 private:
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<std::unique_ptr<LossMask>> masks_;  // null: all tokens are targets
};

// Exit::data naming both values if a corpus has changed since `config` was written.
void require_unchanged(const CorpusMark&, const TokenFile&, const std::filesystem::path& config);

}  // namespace gyr::retro
