// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/project_settings.hpp"

#include <set>

#include "kernels/base/error.hpp"
#include "src/job/run_lock.hpp"
#include "src/retro/blocks.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

// The tokenizer to read: the given one, or the one of the first corpus that names any.
fs::path tokenizer_of(const ProjectOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  for (const std::string& prefix : options.prefixes) {
    const auto fingerprint = fingerprint_of(prefix);
    if (!fingerprint || fingerprint->tokenizer.sum.empty()) continue;
    std::error_code error;
    require(fs::exists(fingerprint->tokenizer.file, error), Exit::missing,
            "{}: names the tokenizer {}, which does not exist; give its new place with --tokenizer FILE", fingerprint_path(prefix).string(),
            fingerprint->tokenizer.file);
    return fingerprint->tokenizer.file;
  }
  return {};
}

void add_tokenizer(const fs::path& path, const ProjectOptions& options, ProjectSettings& s) {
  const Tokenizer tokenizer = Tokenizer::load(path);
  require_tokenizer({options.prefixes.begin(), options.prefixes.end()}, path, "the tokenizer of the project");
  s.tokenizer = mark_of(path);
  s.tokenizer.tokens = tokenizer.size();
  s.end = tokenizer.eod();
  for (std::int32_t id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.is_special(id)) s.special.push_back(id);
}

}  // namespace

ProjectSettings settings_of(const ProjectOptions& options, const Note& note) {
  require(!options.prefixes.empty(), Exit::usage, "no corpus is given: name a deck with data.prefixes, or give --data PREFIX");
  ProjectSettings s;
  s.chunk = options.chunk, s.block = options.block, s.all = options.all;
  s.split = options.all ? "" : options.split;
  std::set<fs::path> seen;
  for (const std::string& prefix : options.prefixes) {
    const TokenFile file(prefix);
    if (const auto fingerprint = fingerprint_of(prefix)) require_described(file, *fingerprint);
    s.corpora.push_back(corpus_mark(file));
    require(seen.insert(s.corpora.back().prefix).second, Exit::usage, "{}: is given twice", prefix);
  }
  if (const fs::path tokenizer = tokenizer_of(options); !tokenizer.empty()) add_tokenizer(tokenizer, options, s);
  else if (note) note("no tokenizer is known: no end token is removed, and no token is special; give --tokenizer FILE if there is one");
  return s;
}

void prepare_folder(const fs::path& project) {
  make_folder(project);
  std::error_code error;
  if (fs::exists(config_path(project), error)) return;
  for (const auto& entry : fs::directory_iterator(project, error))
    require(entry.path().filename() == RunLock::of_run || entry.path().filename() == "config.json.tmp", Exit::usage,
            "{}: is no project, but holds {}; name an empty or a new folder", project.string(), entry.path().filename().string());
}

void make_project(const fs::path& project, const ProjectSettings& s) {
  std::error_code error;
  if (!fs::exists(config_path(project), error)) return write_settings(project, s);
  const ProjectSettings stored = read_settings(project);
  require_same(stored.values(), s.values(), config_path(project), "give the same settings, or another PROJECT");
  if (text_of(stored) != text_of(s)) write_settings(project, s);
}

}  // namespace gyr::retro
