// SPDX-License-Identifier: BSD-3-Clause
// Models and the adapters beside them (modules/weights/adapter.hpp), from and to folders and checkpoints.
#pragma once

#include "src/pretrained/weights.hpp"

namespace gyr {

// What a run with adapters begins from: those that the folder or checkpoint has, drawn ones where it has none; a run without goes on from the sum of
// both. Exit::config where what it has is of another rank, alpha or other layers.
std::unique_ptr<WeightSource> open_adapted(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed);

// W + s B A, in double where W is stored so and in float elsewhere.
TensorReader merged(const TensorReader& w, const TensorReader& a, const TensorReader& b, double scale);

// W as it is, in those types.
TensorReader widened(const TensorReader& w);

// A checkpoint's model with every adapter added to the weight that it stands beside.
std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> stored, const ModelConfig& model);

}  // namespace gyr
