// SPDX-License-Identifier: BSD-3-Clause
// Stored models: a checkpoint with its deck, or a Hugging Face folder with config.json.
#pragma once

#include <filesystem>

#include "src/base/note.hpp"
#include "src/config/run_config.hpp"
#include "src/huggingface/companions.hpp"

namespace gyr {

// Defaults of a run that starts from the model: shape and tokenizer, and for a folder also the precision and an upper
// limit of the sequence length, which `train` does not use (commands/deck_arguments.cpp). `note` reports the settings
// of config.json that were ignored. Exit::missing, Exit::data.
RunDefaults defaults_of(const std::filesystem::path& model, const Note& note = {});

// The configuration of the run that wrote the checkpoint; for a folder, of a run that would start from it.
RunConfig run_of(const std::filesystem::path& model, const Note& note = {});

// The same for inference: without weights that only training needs.
RunConfig inference_run(const std::filesystem::path& model, const Note& note = {});

// Companion files (tokenizer configuration, chat template, ...) of the model; empty for a checkpoint that did not start
// from a folder.
Companions companions_of(const std::filesystem::path& model, const Note& note = {});

// Checksum that identifies the model: XXH3 of a checkpoint's manifest, which contains the checksums of its files, or of
// the checksums of all weight files in name order. Exit::missing, Exit::io.
std::uint64_t checksum_of_model(const std::filesystem::path& model);

// The complete deck of a run that starts from the folder.
std::string deck_of_folder(const std::filesystem::path& folder, const RunDefaults&);

// Exit::data unless a checkpoint of format 1, in which no manifest lists the tensors, has every weight of the model that
// its deck describes. Returns a sentence for users if its deck cannot be read, so that this was not checked.
std::string check_weights_of_deck(const std::filesystem::path& checkpoint);

}  // namespace gyr
