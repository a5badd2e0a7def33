// SPDX-License-Identifier: BSD-3-Clause
// Gemma 2 and 3. Attention layers (with sliding window or full) alternate with gated MLP layers. Each has a norm before
// and after it, whose stored weights are the actual ones minus 1. The embedding is scaled by sqrt(hidden_size). Gemma 2
// soft-caps attention scores and logits with tanh. Gemma 3 has a QK norm, and a separate rope_theta in layers with a
// sliding window.
#include <cmath>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::gemma {

namespace {

// Reads a soft cap; null means 0, no cap.
double read_cap(ConfigReader& r, const char* key, double otherwise) {
  if (r.given(key) && r.value(key).is_null()) return 0;
  return r.positive(key, otherwise);
}

// Attention scores are divided by sqrt(query_pre_attn_scalar) instead of sqrt(head_dim). Our key multiplier is the
// ratio of the two.
double key_multiplier(const AttentionConfig& a, Index query_scale) { return std::sqrt(double(a.head_dim) / double(query_scale)); }
Index query_scale(const AttentionConfig& a) { return std::llround(double(a.head_dim) / (a.key_multiplier * a.key_multiplier)); }

void read_layers(ConfigReader& r, Index vocab_size) {
  ModelConfig& m = r.config.model;
  r.read_widths(vocab_size, 2304, true);
  const Index layers = r.integer("num_hidden_layers", 26, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-6);
  m.norm_placement = NormPlacement::both, m.norm_offset = 1;
  m.embedding_multiplier = std::sqrt(double(m.hidden_size));
  r.read_heads(8, 4);
  if (!r.given("head_dim")) m.attention.head_dim = 256;
  m.attention.bias = r.flag("attention_bias", false);
  m.attention.key_multiplier = key_multiplier(m.attention, r.size("query_pre_attn_scalar", 256));
  m.mlp.intermediate_size = r.size("intermediate_size", 9216);
  m.mlp.activation = r.activation("hidden_activation", Activation::gelu_tanh);
  for (const char* key : {"hidden_act", "cache_implementation"}) r.known(key);  // these keys have no effect in the transformers classes
  const ConfigReader::json& both_ways = r.value("use_bidirectional_attention");
  r.demand(both_ways.is_null() || both_ways == false, "use_bidirectional_attention", "is {}; only causal attention is supported",
           r.text_of(both_ways));
}

// Every `every`-th layer has full attention, the others a sliding window, unless layer_types says otherwise.
void read_kinds(ConfigReader& r, Index every) {
  const bool there = read_window(r);
  read_layer_types(r, there, [&](Index i) { return there && (i + 1) % every != 0; });
}

void read_gemma2(ConfigReader& r) {
  read_layers(r, 256000);
  read_kinds(r, 2);
  r.config.model.attention.soft_cap = read_cap(r, "attn_logit_softcapping", 50);
  r.config.model.lm_head_soft_cap = read_cap(r, "final_logit_softcapping", 30);
  r.read_rotary(1e4, {.stretched = true});
  r.read_tokens(0, 2, 1, 8192);
}

void read_gemma3(ConfigReader& r) {
  read_layers(r, 262208);
  ModelConfig& m = r.config.model;
  // the name with an underscore is used since transformers 5
  const char* const every = r.given("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  read_kinds(r, r.integer(every, 6, 1, most_layers));
  r.known("sliding_window_pattern");
  m.attention.qk_norm = true;
  m.lm_head_soft_cap = r.value("final_logit_softcapping").is_null() ? 0 : r.positive("final_logit_softcapping", 0);
  if (!r.value("attn_logit_softcapping").is_null()) r.note("attn_logit_softcapping is not applied; transformers ignores it too");
  m.window.rope_theta = r.positive("rope_local_base_freq", 1e4);
  r.read_rotary(1e6, {.stretched = true, .by_kind = true});
  r.read_tokens(0, 2, 1, 131072);
}

nlohmann::ordered_json written_cap(double cap) { return cap > 0 ? nlohmann::ordered_json(cap) : nlohmann::ordered_json(nullptr); }

void write_layers(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["attention_bias"] = m.attention.bias;
  j["query_pre_attn_scalar"] = query_scale(m.attention);
  j["final_logit_softcapping"] = written_cap(m.lm_head_soft_cap);
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["num_hidden_layers"] = m.layers() / 2;
  j["hidden_activation"] = ConfigReader::name_of(m.mlp.activation);
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  j["sliding_window"] = m.window.size;  // required by the transformers classes, even if no layer uses a window
  write_layer_types(m, j);
  write_rotary(m.attention, j);
}

void write_gemma2(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  j["attn_logit_softcapping"] = written_cap(c.model.attention.soft_cap);
}

// Writes rope_theta of both layer types in the old and in the new format of transformers.
void write_gemma3(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  if (c.model.window.rope_theta > 0) j["rope_local_base_freq"] = c.model.window.rope_theta;
  write_rotary_by_kind(c.model, j);
}

}  // namespace

StoredPlace normed_output_place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.final_layernorm.weight") return {"model.norm.weight"};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0 || layer >= m.layers()) return {weight};
  const std::string_view feed_forward = "feed_forward.";
  const bool mixes = layer % 2 == 0;
  std::string part = rest;
  if (rest.starts_with(feed_forward)) part = "mlp." + rest.substr(feed_forward.size());
  else if (rest == "input_layernorm.weight" && !mixes) part = "pre_feedforward_layernorm.weight";
  else if (rest == "post_layernorm.weight") part = mixes ? "post_attention_layernorm.weight" : "post_feedforward_layernorm.weight";
  return {fmt::format("model.layers.{}.{}", layer / 2, part)};
}

std::vector<Family> families() {
  return {{"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2, normed_output_place},
          {"gemma3_text", "Gemma3ForCausalLM", read_gemma3, write_gemma3, normed_output_place}};
}

}  // namespace gyr::gemma
