// SPDX-License-Identifier: BSD-3-Clause
// Retrieval projects of Megatron-LM (megatron/core/datasets/retro of core_v0.9.0), whose neighbours a training run reads:
//   config.json                       settings, with keys retro_*
//   db/indexed_dataset_infos.json     corpora in their order: prefix below data/, n_docs
//   db/merged/train.hdf5              as in database.hpp; the last column of `chunks` counts tokens of BERT
//   query/FOLDER/START-END.hdf5       neighbors (n, saved) i64, without scores
// No file names the settings that it depends on.
#pragma once

#include "src/retro/blocks.hpp"
#include "src/retro/project.hpp"

namespace gyr::retro {

bool is_megatron_project(const std::filesystem::path& project);

// Settings that samples depend on. Those that config.json lacks are empty.
struct MegatronSettings {
  ProjectSettings project;  // its chunk, corpora, and `foreign`
  std::optional<std::int64_t> seq_length, seed;
  std::optional<std::string> split;
};
// Exit::data for damaged files. Exit::missing for token files that do not exist, or that have lost documents.
MegatronSettings read_megatron_project(const std::filesystem::path& project);

struct MegatronNeighbours {
  Blocks blocks;
  std::int64_t saved;  // neighbours of each chunk
};
// The block files of a folder. Exit::missing if there are none. Exit::data, with file and dataset, for a block that is absent or
// has other rows than its name.
MegatronNeighbours megatron_neighbours(const std::filesystem::path& folder);

}  // namespace gyr::retro
