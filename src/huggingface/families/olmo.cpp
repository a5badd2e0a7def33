// SPDX-License-Identifier: BSD-3-Clause
// OLMo 2 and 3. One transformers layer is an attention layer and a SwiGLU layer of ours. Norms are on the outputs of
// both, and on all queries and all keys of a row. In OLMo 3, most attention layers have a sliding window, and RoPE is
// scaled in the others only.
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::olmo {

namespace {

constexpr Index full_every = 4;       // every fourth layer of OLMo 3 has full attention by default
constexpr double window_theta = 5e5;  // RoPE base that transformers takes for sliding-window layers, if the file does not give it

void read_layers(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(50304, 4096, false);
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  m.norm_placement = NormPlacement::output;
  r.read_heads(32, 0);
  m.attention.qk_norm = m.attention.qk_norm_all_heads = true;
  m.attention.bias = r.flag("attention_bias", false);
  m.mlp.intermediate_size = r.size("intermediate_size", 11008);
  m.mlp.activation = r.activation("hidden_act", Activation::silu);
}

void read_olmo2(ConfigReader& r) {
  read_layers(r);
  r.read_rotary(1e4, {.stretched = true});
  r.read_tokens(1, {}, 50279, 2048);
}

void read_olmo3(ConfigReader& r) {
  read_layers(r);
  ModelConfig& m = r.config.model;
  const bool there = read_window(r);
  read_layer_types(r, there, [&](Index i) { return there && (i + 1) % full_every != 0; });
  r.read_rotary(window_theta, {.stretched = true, .by_kind = true});
  r.demand(m.window.rope_theta > 0 || !has_window(m) || m.attention.rope_theta == window_theta, "rope_theta",
           "is {}, but transformers takes {} for sliding-window layers; write rope_parameters with the rope_theta of each layer type",
           m.attention.rope_theta, window_theta);
  if (m.window.rope_theta == 0) m.window.rope_theta = window_theta;
  r.read_tokens(1, {}, 50279, 2048);
}

void write_olmo2(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["attention_bias"] = m.attention.bias;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
}

void write_olmo3(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_olmo2(c, j);
  j["sliding_window"] = c.model.window.size;  // required by the transformers classes, even if no layer uses a window
  write_layer_types(c.model, j);
  write_rotary_by_kind(c.model, j);
}

}  // namespace

std::vector<Family> families() {
  return {{"olmo2", "Olmo2ForCausalLM", read_olmo2, write_olmo2, gemma::normed_output_place},
          {"olmo3", "Olmo3ForCausalLM", read_olmo3, write_olmo3, gemma::normed_output_place}};
}

}  // namespace gyr::olmo
