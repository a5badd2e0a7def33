// SPDX-License-Identifier: BSD-3-Clause
// A retrieval project with vectors instead of an index of tokens, made by one rank in this process.
#pragma once

#include "regression/support/retro.hpp"
#include "src/retro/vectors/vector_search.hpp"

namespace gyr::testing {

// A project whose vectors are made by a function of the tokens.
struct VectorProject {
  VectorProject() {
    std::mt19937 random(5);
    write_token_files(folder / "a", drawn_documents(random, 30, 40, 20), TokenType::u16);
    project = std::make_unique<RetroProject>(folder / "p", plain_settings({folder / "a"}, 4, 20));
    std::filesystem::remove_all(retro::index_folder(project->path));
    settings = {project->settings.hash(), folder / "encoder", "00000000000000ab", 6};
    retro::make_folder(retro::vectors_folder(project->path));
    retro::write_vector_settings(project->path, settings);
  }
  static std::vector<float> encode(std::span<const std::int32_t> tokens) {
    std::vector<float> vector(6);
    for (const std::int32_t token : tokens) vector[std::size_t(token) % 6] += 1 + float(token) / 7;
    return tokens.empty() ? std::vector<float>() : vector;
  }
  void build(const retro::EncodeText& by = encode) const {
    retro::build_vectors(project->path, *project->database, settings, by, one_rank(), [](std::int64_t, std::int64_t) {});
  }
  retro::Blocks blocks() const { return retro::vector_blocks(project->path, project->settings, project->database->size()); }
  Folder folder;
  std::unique_ptr<RetroProject> project;
  retro::VectorSettings settings;
};

}  // namespace gyr::testing
