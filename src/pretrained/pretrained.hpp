// SPDX-License-Identifier: BSD-3-Clause
// A model that exists already: a checkpoint with the deck it carries, or a folder of Hugging Face's with its config.json.
#pragma once

#include <filesystem>

#include "src/base/note.hpp"
#include "src/config/run_config.hpp"
#include "src/huggingface/companions.hpp"

namespace gyr {

// What a run that goes on from the model takes over where its deck says nothing: shape and tokenizer; of a folder also the precision its
// weights have. `note` is told what of a config.json was passed over. Exit::missing, Exit::data.
RunDefaults defaults_of(const std::filesystem::path& model, const Note& note = {});

// The run the model came from; of a folder, one that would start from it.
RunConfig run_of(const std::filesystem::path& model, const Note& note = {});

// The same of the model as it is read where nothing is trained, without weights that training alone needs.
RunConfig run_to_read(const std::filesystem::path& model, const Note& note = {});

// What says how the model is to be used; of a checkpoint what it carries, which is nothing where no folder was at its beginning.
Companions companions_of(const std::filesystem::path& model, const Note& note = {});

// A sum that no other model has: XXH3 of a checkpoint's manifest, which has the sums of its files, or else of the sums of the files of weights, by
// name. Exit::missing, Exit::io.
std::uint64_t sum_of_model(const std::filesystem::path& model);

// A complete deck of a run that starts from a folder.
std::string deck_of_folder(const std::filesystem::path& folder, const RunDefaults&);

}  // namespace gyr
