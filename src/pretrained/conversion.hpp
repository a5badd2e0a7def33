// SPDX-License-Identifier: BSD-3-Clause
// Hugging Face's folder to checkpoint and back, a block of rows at a time: neither needs memory for a whole tensor, nor more than one process.
#pragma once

#include <filesystem>
#include <optional>

#include "src/base/note.hpp"
#include "src/huggingface/safetensors_header.hpp"

namespace gyr {

struct Converted {
  Index tensors = 0, bytes = 0, files = 0;  // that were written
};

// The checkpoint (step 0, no optimizer) of the folder's weights, each in its own type; half precision, which checkpoints do not have, as
// float32 that remembers it. Its deck is a complete one that starts from the folder, and it carries the folder's companions. Exit::config naming the
// tensor where weights and config.json differ, Exit::usage where the checkpoint is there and not to be replaced.
// `adapters`: a folder of PEFT's, whose adapters stand beside the weights from then on; empty: there are none.
Converted import_folder(const std::filesystem::path& folder, const std::filesystem::path& checkpoint, bool overwrite, const Note&,
                        const std::filesystem::path& adapters = {});

struct ExportOptions {
  std::optional<safetensors::Type> type;  // of all weights; without it as they are stored
  Index shard_bytes = 0;  // most bytes of tensors in a file, unless one is larger; 0: files as in `like`, or 5 GB where that is unknown
  // Folder to take what a deck does not know from: tokens, tokenizer, ..., and where no type is given which weights are in blocks of 4 bits; may be
  // empty.
  std::filesystem::path like;
  bool overwrite = false;
  bool adapters = false;  // a folder of PEFT's with the adapters alone; otherwise each is added to the weight that it stands beside
};

// The folder of a checkpoint's weights: config.json, generation_config.json, model.safetensors or shards with their index, tokenizer. `note` is told
// how many blocks of 4 bits were rounded.
// Without `like` the companions serve that the checkpoint carries, and the folder the run started from, where that still exists. Exit::config where
// no family (src/huggingface/family.hpp) computes what the model does, or where there are no adapters, other weights beside them, or layers that PEFT
// has not.
Converted export_folder(const std::filesystem::path& checkpoint, const std::filesystem::path& folder, const ExportOptions&, const Note&);

}  // namespace gyr
