// SPDX-License-Identifier: BSD-3-Clause
// SmolLM3. One transformers layer is an attention layer and a SwiGLU layer of ours. Layers without position embedding
// (NoPE) are window layers (W) with model.window.rotary: false, which have full attention if the file has no window.
#include <algorithm>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::smollm3 {

namespace {

using json = ConfigReader::json;

constexpr Index unlimited = longest;  // window of NoPE layers with full attention

// no_rope_layers has 1 for each layer with RoPE and 0 for each without. By default every no_rope_layer_interval-th layer has none.
void read_pattern(ConfigReader& r) {
  const Index layers = r.integer("num_hidden_layers", 36, 1, most_layers / 2), interval = r.integer("no_rope_layer_interval", 4, 1, most_layers);
  const char *const key = "no_rope_layers", *const types_key = "layer_types";
  const json &with_rope = r.value(key), &kinds = r.value(types_key);
  r.demand(with_rope.is_null() || (with_rope.is_array() && Index(with_rope.size()) >= layers), key, "is {}, which is not a list of {} layers",
           r.text_of(with_rope), layers);
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), types_key, "is {}, which is not a list of {} layer types",
           r.text_of(kinds), layers);
  ModelConfig& m = r.config.model;
  for (Index i = 0; i < layers; ++i) {
    const bool rotates = with_rope.is_null() ? (i + 1) % interval != 0 : r.integer(with_rope[i], key, 0, 1) == 1;
    m.pattern += rotates ? "*-" : "W-";
  }
  const bool there = r.flag("use_sliding_window", false) && !r.value("sliding_window").is_null() && read_window(r);
  if (!there) m.window.size = unlimited;
  m.window.rotary = false;
  for (Index i = 0; i < layers && !kinds.is_null(); ++i)
    r.demand(kinds[i] == (there && m.pattern[2 * i] == 'W' ? window_kind : full_kind), types_key,
             "has {} for layer {}; only layers without RoPE may have a sliding window, and all of them if use_sliding_window is true",
             r.text_of(kinds[i]), i);
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(128256, 2048, true);
  read_pattern(r);
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-6);
  r.read_heads(16, 4);
  m.attention.bias = r.flag("attention_bias", false);
  m.mlp.intermediate_size = r.size("intermediate_size", 11008);
  m.mlp.activation = r.activation("hidden_act", Activation::silu);
  m.mlp.bias = r.flag("mlp_bias", false);
  r.read_rotary(2e6, {.stretched = true});
  r.read_tokens(128004, 128000, 128001, 32768);
  for (const char* key : {"sliding_window", "pretraining_tp", "max_window_layers"}) r.known(key);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  const bool windows = has_window(m) && m.window.size < unlimited;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  for (Index i = 0; i < m.layers(); i += 2) {
    j["no_rope_layers"].push_back(m.pattern[i] == 'W' ? 0 : 1);
    j["layer_types"].push_back(windows && m.pattern[i] == 'W' ? window_kind : full_kind);
  }
  j["use_sliding_window"] = windows;
  j["sliding_window"] = windows ? nlohmann::ordered_json(m.window.size) : nlohmann::ordered_json(nullptr);
  j["attention_bias"] = m.attention.bias;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["mlp_bias"] = m.mlp.bias;
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
}

}  // namespace

std::vector<Family> families() { return {{"smollm3", "SmolLM3ForCausalLM", read, write, llama::layer_pair_place}}; }

}  // namespace gyr::smollm3
