// SPDX-License-Identifier: BSD-3-Clause
// The weights of a model that exists already, whatever holds them.
#pragma once

#include "src/checkpoint/checkpoint.hpp"

namespace gyr {

// A checkpoint, or a folder with config.json and safetensors; modules that tell tokens further ahead are left out where the model has none.
// Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path&, const ModelConfig&);

// The weights alone, with an optimizer that has seen nothing, or into weights that have none. Collective over the grid; errors as
// load_checkpoint.
inline void load_weights(const std::filesystem::path& path, ModelState& state) {
  load_weights_from([&] { return open_weights(path, state.model()); }, state);
}
inline void load_weights(const std::filesystem::path& path, Grid& grid, const ModelConfig& model, ParameterList parameters,
                         const Arrived& arrived = {}) {
  load_weights_from([&] { return open_weights(path, model); }, grid, model, parameters, arrived);
}

}  // namespace gyr
