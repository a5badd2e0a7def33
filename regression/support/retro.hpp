// SPDX-License-Identifier: BSD-3-Clause
// A retrieval project of drawn token files, made by one rank in this process.
#pragma once

#include <memory>
#include <random>
#include <set>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/token_files.hpp"
#include "src/retro/check.hpp"
#include "src/retro/database_build.hpp"
#include "src/retro/project_settings.hpp"

namespace gyr::testing {

// Drawn documents of token ids from 1 on. Few distinct ids and repeated documents give equal scores.
inline TokenLists drawn_documents(std::mt19937& random, int documents, int longest, int vocabulary) {
  TokenLists lists;
  for (int d = 0; d < documents; ++d) {
    if (!lists.empty() && random() % 8 == 0) {
      lists.push_back(lists[random() % lists.size()]);
      continue;
    }
    lists.emplace_back(random() % unsigned(longest + 1));
    for (std::int32_t& token : lists.back()) token = 1 + std::int32_t(std::min(random() % unsigned(vocabulary), random() % unsigned(vocabulary)));
  }
  return lists;
}

inline Communicator& one_rank() { return single_rank_grid(1).world(); }

// Settings without a tokenizer; tests set end and special tokens.
inline retro::ProjectSettings plain_settings(const std::vector<std::string>& prefixes, std::int64_t chunk, std::int64_t block) {
  retro::ProjectOptions options;
  options.prefixes = prefixes, options.split = "90,10,0", options.chunk = chunk, options.block = block;
  return retro::settings_of(options, {});
}

// A project with its database and index, opened.
class RetroProject {
 public:
  RetroProject(const std::filesystem::path& folder, const retro::ProjectSettings& s, double common = 0.1) : path(folder) {
    retro::prepare_folder(path);
    retro::make_project(path, s);
    settings = retro::read_settings(path);
    corpora = std::make_unique<retro::Corpora>(settings);
    counts = retro::build_database(path, settings, *corpora, one_rank());
    database = std::make_unique<retro::Database>(path, settings, *corpora);
    retro::build_index(path, *database, common, one_rank(), [](const retro::IndexCounts&) {});
  }

  // Settings of queries of all documents of the training split.
  retro::QuerySettings queries(std::int64_t seq_length, const std::string& order, std::int64_t samples) const {
    retro::QuerySettings s;
    s.project = settings.hash(), s.index = retro::index_hash(settings, retro::read_statistics(path, settings).common);
    s.chunk = settings.chunk, s.block = settings.block, s.corpora = settings.corpora, s.split = settings.split, s.order = order;
    if (s.corpora.size() > 1) s.weights.assign(s.corpora.size(), 0.5);
    s.seq_length = seq_length, s.samples = order == "megatron" ? samples : 0;
    return s;
  }
  // Writes the neighbours and returns their folder.
  std::filesystem::path find(const retro::QuerySettings& s) const {
    const std::filesystem::path to = retro::neighbours_folder(path, s);
    retro::make_folder(to);
    retro::write_query_settings(to, s);
    retro::Retriever retriever(path, *database, one_rank());
    const retro::QuerySamples samples(s, settings, to / "config.json");
    retro::build_neighbours(to, s, samples, retriever, database->size(), one_rank(), [](std::int64_t, std::int64_t) {});
    return to;
  }

  std::filesystem::path path;
  retro::ProjectSettings settings;
  std::unique_ptr<retro::Corpora> corpora;
  retro::DatabaseCounts counts;
  std::unique_ptr<retro::Database> database;
};

// The files of a folder and their contents, without lock files.
inline std::map<std::string, std::string> files_below(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != "lock")
      files[std::filesystem::relative(entry.path(), folder).string()] = contents(entry.path());
  return files;
}

}  // namespace gyr::testing
