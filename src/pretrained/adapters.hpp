// SPDX-License-Identifier: BSD-3-Clause
// LoRA adapters (modules/weights/adapter.hpp) of stored models: reading them from folders and checkpoints, and merging them
// into the weights.
#pragma once

#include "src/pretrained/weights.hpp"

namespace gyr {

// Initial weights of a run. If the run has adapters, they are read from the folder or checkpoint, or initialised if it
// has none. If the run has none, stored adapters are merged into the weights. Exit::config if the stored adapters have
// another rank, alpha or set of layers.
std::unique_ptr<WeightSource> open_adapted(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed);

// The merged weight W + s B A, s: `scale`. The result is fp64 if W is stored in fp64, else fp32. The product s B A is
// summed in fp64.
TensorReader merged(const TensorReader& w, const TensorReader& a, const TensorReader& b, double scale);

// W unchanged, converted to the type that merged() would give.
TensorReader widened(const TensorReader& w);

// The weights of a checkpoint with every LoRA adapter merged into its base weight.
std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> stored, const ModelConfig& model);

}  // namespace gyr
