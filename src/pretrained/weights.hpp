// SPDX-License-Identifier: BSD-3-Clause
// The weights of a model that exists already, whatever holds them.
#pragma once

#include "src/checkpoint/checkpoint.hpp"

namespace gyr {

// A checkpoint, or a folder with config.json and safetensors. Exit::missing, Exit::data.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path&, const ModelConfig&);

// The weights alone, with an optimizer that has seen nothing, or into a stage that has none. Collective over the grid; errors as
// load_checkpoint.
template <class T>
void load_weights(const std::filesystem::path& path, Engine<T>& engine) {
  load_weights_from<T>([&] { return open_weights(path, engine.config().model); }, engine);
}
template <class T>
void load_weights(const std::filesystem::path& path, Grid& grid, Stage<T>& stage) {
  load_weights_from<T>([&] { return open_weights(path, stage.config()); }, grid, stage);
}

}  // namespace gyr
