// SPDX-License-Identifier: BSD-3-Clause
// Windows of attention in config.json. Of a pattern of theirs every other layer, from the first on, is one of attention.
#pragma once

#include "src/huggingface/config_reader.hpp"

namespace gyr {

// The window's size where the file has one: the usual one where it says nothing, none where it says null.
bool read_window(ConfigReader&);
// Makes windows of attention layers: of all, or of those that layer_types names, or, where there is no such list, of those `otherwise` says.
// `there`: whether the file has a window.
void use_sliding_windows(ModelConfig&);
template <class Otherwise>
void read_layer_types(ConfigReader& r, bool there, const Otherwise& otherwise) {
  ModelConfig& m = r.config.model;
  const Index layers = m.layers() / 2;
  const ConfigReader::json& kinds = r.value("layer_types");
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), "layer_types", "is {}, not a list of the kinds of {} layers",
           r.text_of(kinds), layers);
  for (Index i = 0; i < layers; ++i) {
    const bool full = kinds.is_null() ? !otherwise(i) : kinds[i] == full_kind;
    if (full) continue;
    r.demand(kinds.is_null() || kinds[i] == window_kind, "layer_types", "is {}; layers are \"{}\" or \"{}\"", r.text_of(kinds), full_kind,
             window_kind);
    r.demand(there, "layer_types", "is {}, and there is no window: sliding_window must be a number", r.text_of(kinds));
    m.pattern[2 * i] = 'W';
  }
}

bool has_window(const ModelConfig&);
void write_window(const ModelConfig&, nlohmann::ordered_json&);
void write_layer_types(const ModelConfig&, nlohmann::ordered_json&);

}  // namespace gyr
