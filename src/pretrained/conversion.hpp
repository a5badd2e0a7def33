// SPDX-License-Identifier: BSD-3-Clause
// Converts a Hugging Face folder to a checkpoint and back, in blocks of rows. A single process suffices, and memory is
// independent of tensor sizes.
#pragma once

#include <filesystem>
#include <optional>

#include "src/base/note.hpp"
#include "src/config/run_config.hpp"
#include "src/huggingface/safetensors_header.hpp"

namespace gyr {

struct Converted {
  Index tensors = 0, bytes = 0, files = 0;  // number of tensors, bytes of their data, and number of weight files written
};

// Writes a checkpoint (step 0, no optimizer state) with the folder's weights in their own types. Half precision, which
// checkpoints do not support, is stored as fp32 with a mark. The deck in the checkpoint is complete and starts from the
// folder. The folder's companion files are included. Exit::data with the name of the tensor if weights and config.json
// differ. Exit::usage if the checkpoint exists and overwrite is false, or if something else has its name. `adapters`: a
// PEFT folder whose LoRA adapters are imported as separate weights; empty: none.
Converted import_folder(const std::filesystem::path& folder, const std::filesystem::path& checkpoint, bool overwrite, const Note&,
                        const std::filesystem::path& adapters = {});

struct ExportOptions {
  std::optional<safetensors::Type> type;  // type of all weights; default: as stored
  Index shard_bytes = 0;  // maximum tensor bytes per file, exceeded only by a larger single tensor; 0: files as in `like`, or 5 GB if that is unknown
  // Folder that provides what a deck does not contain: token ids, tokenizer and other files, and, if no type is given,
  // the choice of weights in 4-bit blocks. May be empty.
  std::filesystem::path like;
  bool overwrite = false;
  bool adapters = false;  // true: write only the adapters, as a PEFT folder; false: merge each adapter into its base weight
};

// Writes a Hugging Face folder from a checkpoint: config.json, generation_config.json, model.safetensors or shards with
// their index, tokenizer. `note` reports the number of rounded 4-bit blocks. Without `like`, the companion files in the
// checkpoint are used, or else the folder that the run started from, if it still exists. Exit::config if no family
// (src/huggingface/family.hpp) can represent the model. Exit::config for `adapters` if there are none, if other weights
// were trained too, or if PEFT has no such layers.
Converted export_folder(const std::filesystem::path& checkpoint, const std::filesystem::path& folder, const ExportOptions&, const Note&);

// Sentence about adapters of a run (finetune.lora) that ExportOptions::adapters would refuse; empty if there are none. For a
// run that has not begun, so that other targets can be chosen.
std::string refusal_of_adapters(const RunConfig&);

}  // namespace gyr
