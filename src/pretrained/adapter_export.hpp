// SPDX-License-Identifier: BSD-3-Clause
// Writes the LoRA adapters of a checkpoint as a PEFT folder.
#pragma once

#include "src/checkpoint/checkpoint_file.hpp"
#include "src/huggingface/family.hpp"
#include "src/pretrained/conversion.hpp"

namespace gyr {

// `model` has the adapters that the checkpoint stores, `plain` is the same model without them, `like` the folder of the
// base model or empty. Exit::config if there are no adapters, or if PEFT cannot load them for the class of the family.
// `check_adapters` throws the errors of the latter kind.
void check_adapters(const ModelConfig& model, const Family&, const ModelConfig& plain);
Converted export_adapters(const CheckpointFile&, const ModelConfig& model, const Family&, const ModelConfig& plain,
                          const std::filesystem::path& target, const ExportOptions&, const std::filesystem::path& like);

}  // namespace gyr
