// SPDX-License-Identifier: BSD-3-Clause
// Settings of a new project: the marks of its corpora, and the special tokens of their tokenizer.
#pragma once

#include "src/base/note.hpp"
#include "src/retro/project.hpp"

namespace gyr::retro {

struct ProjectOptions {
  std::vector<std::string> prefixes;
  std::string tokenizer;  // tokenizer.json; empty: the one that PREFIX.json names, if any
  std::string split;
  std::int64_t chunk = 64, block = 100'000;
  bool all = false;
};

// Reads the corpora and the tokenizer. Exit::data if the corpora were made with different tokenizers or with another one
// than `tokenizer`. Exit::missing if that file does not exist. `note`: receives a remark if no tokenizer is known.
ProjectSettings settings_of(const ProjectOptions&, const Note& note);

// Creates the folder of a new project. Exit::usage if it has other contents than a project. Exit::io.
void prepare_folder(const std::filesystem::path& project);
// Writes config.json of a new project, or compares the settings with those of an existing one. Exit::config naming both
// values of a setting that differs. If only the places of token files or of the tokenizer differ, the new ones are stored.
void make_project(const std::filesystem::path& project, const ProjectSettings&);

}  // namespace gyr::retro
