// SPDX-License-Identifier: BSD-3-Clause
// Keys of sliding-window attention in config.json. In the layer patterns of these models, symbols 0, 2, 4 ... are
// attention layers: `*` with full attention, `W` with a window.
#pragma once

#include "src/huggingface/config_reader.hpp"

namespace gyr {

// Reads sliding_window, 4096 if the key is absent. Returns false if it is null, which means no window.
bool read_window(ConfigReader&);
// use_sliding_windows: all attention layers get a window. read_layer_types: the layers that layer_types lists get one
// or, if there is no such list, layers i for which otherwise(i) is true. `there`: true if the file has a window.
void use_sliding_windows(ModelConfig&);
template <class Otherwise>
void read_layer_types(ConfigReader& r, bool there, const Otherwise& otherwise) {
  ModelConfig& m = r.config.model;
  const Index layers = m.layers() / 2;
  const ConfigReader::json& kinds = r.value("layer_types");
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), "layer_types", "is {}, which is not a list of {} layer types",
           r.text_of(kinds), layers);
  for (Index i = 0; i < layers; ++i) {
    const bool full = kinds.is_null() ? !otherwise(i) : kinds[i] == full_kind;
    if (full) continue;
    r.demand(kinds.is_null() || kinds[i] == window_kind, "layer_types", "is {}; a layer type must be \"{}\" or \"{}\"", r.text_of(kinds), full_kind,
             window_kind);
    r.demand(there, "layer_types", "is {}, but the model has no window; set sliding_window to a number of tokens", r.text_of(kinds));
    m.pattern[2 * i] = 'W';
  }
}

bool has_window(const ModelConfig&);
void write_window(const ModelConfig&, nlohmann::ordered_json&);
void write_layer_types(const ModelConfig&, nlohmann::ordered_json&);
// Replaces rope_parameters, which write_rotary has written, by one object per layer type.
void write_rotary_by_kind(const ModelConfig&, nlohmann::ordered_json&);

}  // namespace gyr
