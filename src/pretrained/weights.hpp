// SPDX-License-Identifier: BSD-3-Clause
// Loads the weights of a stored model, whether a checkpoint or a folder.
#pragma once

#include "src/checkpoint/checkpoint.hpp"

namespace gyr {

// Opens a checkpoint, or a folder with config.json and safetensors. Multi-token-prediction modules are left out if the
// model has none. Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path&, const ModelConfig&);

// Loads only the weights. The optimizer state stays at its initial value. The second overload needs no optimizer.
// Collective over the grid; errors as in load_checkpoint.
inline void load_weights(const std::filesystem::path& path, ModelState& state) {
  load_weights_from([&] { return open_weights(path, state.model()); }, state);
}
inline void load_weights(const std::filesystem::path& path, Grid& grid, const ModelConfig& model, ParameterList parameters,
                         const Arrived& arrived = {}) {
  load_weights_from([&] { return open_weights(path, model); }, grid, model, parameters, arrived);
}

}  // namespace gyr
