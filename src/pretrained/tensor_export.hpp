// SPDX-License-Identifier: BSD-3-Clause
// Tensors of a safetensors file that are read from a checkpoint, and the writing of such files.
#pragma once

#include <filesystem>
#include <optional>

#include "src/checkpoint/checkpoint_file.hpp"
#include "src/huggingface/safetensors.hpp"
#include "src/huggingface/stored_names.hpp"
#include "src/pretrained/block_export.hpp"
#include "src/report/transfer.hpp"

namespace gyr {

// One output tensor: the reader of its values, and its description in the file.
struct TensorExport {
  TensorReader from;
  safetensors::Tensor to;
  bool as_stored = false;  // true: the bits are copied without conversion
  BlockPart part = BlockPart::none;
  BlockExport* blocks = nullptr;  // encoder of 4-bit blocks, if `part` is not none
  Index bytes() const { return elements(to.shape) * safetensors::size_of(to.type); }
};

// The export of tensor `name`, which stores the weight `first` and the weights that are stacked with it. Adapters are
// merged. `wanted`: its type; default: as stored.
TensorExport tensor_export(const CheckpointFile&, const LoraConfig&, const StoredNames&, const std::string& name, const std::string& first,
                           std::optional<safetensors::Type> wanted);
// Type in the file of a weight that the checkpoint stores, before any conversion.
safetensors::Type stored_type(const CheckpointFile&, const std::string& weight);

// Writes a file with these tensors. A separate thread converts and writes while this thread reads ahead.
void write_shard(const std::filesystem::path& file, std::vector<const TensorExport*> tensors, Transfer&);
void write_text(const std::filesystem::path& file, const std::string& text);

// True if a file of this name may belong to a model folder or an adapter folder, which an export may overwrite.
bool belongs_to_model_folder(const std::string& name);

}  // namespace gyr
