// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/window_keys.hpp"

#include <algorithm>

namespace gyr {

constexpr Index usual_window = 4096;

bool read_window(ConfigReader& r) {
  if (r.given("sliding_window") && r.value("sliding_window").is_null()) return false;
  r.config.model.window.size = r.integer("sliding_window", usual_window, 1, longest);
  return true;
}

void use_sliding_windows(ModelConfig& m) { std::replace(m.pattern.begin(), m.pattern.end(), '*', 'W'); }

bool has_window(const ModelConfig& m) { return m.pattern.find('W') != std::string::npos; }

void write_window(const ModelConfig& m, nlohmann::ordered_json& j) {
  j["sliding_window"] = has_window(m) ? nlohmann::ordered_json(m.window.size) : nlohmann::ordered_json(nullptr);
}

void write_layer_types(const ModelConfig& m, nlohmann::ordered_json& j) {
  for (Index i = 0; i < m.layers(); i += 2) j["layer_types"].push_back(m.pattern[i] == 'W' ? window_kind : full_kind);
}

void write_rotary_by_kind(const ModelConfig& m, nlohmann::ordered_json& j) {
  nlohmann::ordered_json kinds{{full_kind, j["rope_parameters"]}};
  if (m.window.rope_theta > 0) kinds[window_kind] = {{"rope_type", "default"}, {"rope_theta", m.window.rope_theta}};
  if (!m.attention.rope_scaling.truncate) kinds["truncate"] = false;  // transformers 5.24 reads it here, and not in the object of the layer type
  j["rope_parameters"] = kinds;
}

}  // namespace gyr
