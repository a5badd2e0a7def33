// SPDX-License-Identifier: BSD-3-Clause
// Llama and similar models: Qwen2, Qwen3, Mistral, Mixtral, Qwen3-MoE. One transformers layer is an attention layer and
// a SwiGLU layer or an expert layer of ours.
#include <algorithm>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::llama {

namespace {

struct Defaults {
  Index vocab_size, intermediate_size, num_kv_heads;  // num_kv_heads 0: as many key/value heads as query heads
  double eps, theta;
  std::optional<Index> begin, end;
  Index positions;
};

void read_layers(ConfigReader& r, const Defaults& d) {
  ModelConfig& m = r.config.model;
  r.read_widths(d.vocab_size, 4096, false);
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
  m.rms_norm_eps = r.not_negative("rms_norm_eps", d.eps);
  r.read_heads(32, d.num_kv_heads);
  m.mlp.intermediate_size = r.size("intermediate_size", d.intermediate_size);
  m.mlp.activation = r.activation("hidden_act", Activation::silu);
  r.read_rotary(d.theta, {.stretched = true});
  r.read_tokens({}, d.begin, d.end, d.positions);
}

void read_llama(ConfigReader& r) {
  read_layers(r, {32000, 11008, 0, 1e-6, 1e4, 1, 2, 2048});
  r.config.model.attention.bias = r.flag("attention_bias", false);
  r.config.model.mlp.bias = r.flag("mlp_bias", false);
  r.known("pretraining_tp");
}

void read_mistral(ConfigReader& r) {
  read_layers(r, {32000, 14336, 8, 1e-6, 1e4, 1, 2, 4096 * 32});
  if (read_window(r)) use_sliding_windows(r.config.model);
}

// Layers from max_window_layers on have a sliding window, unless layer_types lists others.
void read_windows_of_layers(ConfigReader& r) {
  const Index first = r.integer("max_window_layers", 28, 0, most_layers);
  const bool there = r.flag("use_sliding_window", false) && read_window(r);
  r.known("sliding_window");
  read_layer_types(r, there, [&](Index i) { return there && i >= first; });
}

constexpr Defaults qwen{151936, 22016, 32, 1e-6, 1e4, {}, {}, 32768};

void read_qwen2(ConfigReader& r) {
  read_layers(r, qwen);
  read_windows_of_layers(r);
  r.config.model.attention.qkv_bias = true;
}

void read_qwen3_layers(ConfigReader& r, const Defaults& d) {
  read_layers(r, d);
  r.config.model.attention.bias = r.flag("attention_bias", false);
  r.config.model.attention.qk_norm = true;
}
void read_qwen3(ConfigReader& r) {
  read_qwen3_layers(r, qwen);
  read_windows_of_layers(r);
  if (!r.given("head_dim")) r.config.model.attention.head_dim = 128;
}

void write_layers(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["num_hidden_layers"] = m.layers() / 2;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
}

void write_llama(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  j["attention_bias"] = c.model.attention.bias;
  j["mlp_bias"] = c.model.mlp.bias;
}

// Writes the sliding window in the old format (max_window_layers) and in the new one (layer_types). The old format can
// only say from which layer on there is a window.
void write_windows_of_layers(const ModelConfig& m, nlohmann::ordered_json& j) {
  j["use_sliding_window"] = has_window(m);
  if (!has_window(m)) return;
  write_window(m, j);
  j["max_window_layers"] = m.pattern.find('W') / 2;
  write_layer_types(m, j);
}

void write_qwen2(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  write_windows_of_layers(c.model, j);
}

void write_qwen3(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_qwen2(c, j);
  j["attention_bias"] = c.model.attention.bias;
}

void write_mistral(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  write_window(c.model, j);
}

// Mixtral: the MLP layers of Llama are expert layers.
void read_mixtral(ConfigReader& r) {
  read_layers(r, {32000, 14336, 8, 1e-5, 1e6, 1, 2, 4096 * 32});
  r.silu("hidden_act");
  ModelConfig& m = r.config.model;
  std::replace(m.pattern.begin(), m.pattern.end(), '-', 'E');
  std::swap(m.moe.intermediate_size, m.mlp.intermediate_size);
  r.second_name("num_experts", "num_local_experts");
  m.moe.experts = r.integer("num_local_experts", 8, 1, most_experts);
  m.moe.routing.top_k = r.integer("num_experts_per_tok", 2, 1, m.moe.experts);
  if (r.given("sliding_window") && read_window(r)) use_sliding_windows(m);
  if (r.not_negative("router_jitter_noise", 0) > 0) r.note("router_jitter_noise is not applied; it is not supported in training");
  for (const char* key : {"output_router_logits", "router_aux_loss_coef"}) r.known(key);  // these keys affect only the training loss
}

void write_mixtral(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_layers(c, j);
  const MoeConfig& moe = c.model.moe;
  j["intermediate_size"] = moe.intermediate_size;
  j["num_local_experts"] = moe.experts;
  j["num_experts_per_tok"] = moe.routing.top_k;
  write_window(c.model, j);
}

// MLP layers are expert layers at every decoder_sparse_step-th transformers layer, except those in mlp_only_layers.
void read_qwen3_moe(ConfigReader& r) {
  read_qwen3_layers(r, {151936, 6144, 4, 1e-6, 1e4, {}, {}, 32768});
  r.silu("hidden_act");
  ModelConfig& m = r.config.model;
  const Index step = r.integer("decoder_sparse_step", 1, 1, most_layers), layers = m.layers() / 2;
  for (Index i = step - 1; i < layers; i += step) m.pattern[2 * i + 1] = 'E';
  const ConfigReader::json& plain = r.value("mlp_only_layers");
  r.demand(plain.is_null() || plain.is_array(), "mlp_only_layers", "is {}, which is not a list", r.text_of(plain));
  for (const ConfigReader::json& i : plain) m.pattern[2 * r.integer(i, "mlp_only_layers", 0, layers - 1) + 1] = '-';
  const char* const experts = r.given("num_local_experts") ? "num_local_experts" : "num_experts";  // num_local_experts since transformers 5
  m.moe.experts = r.integer(experts, 128, 1, most_experts);
  m.moe.routing.top_k = r.integer("num_experts_per_tok", 8, 1, m.moe.experts);
  m.moe.routing.normalize = r.flag("norm_topk_prob", false);
  m.moe.intermediate_size = r.size("moe_intermediate_size", 768);
  if (r.flag("use_sliding_window", false) && read_window(r)) use_sliding_windows(m);
  for (const char* key : {"sliding_window", "max_window_layers"}) r.known(key);
  for (const char* key : {"output_router_logits", "router_aux_loss_coef"}) r.known(key);  // these keys affect only the training loss
}

void write_qwen3_moe(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_layers(c, j);
  j["attention_bias"] = m.attention.bias;
  j["use_sliding_window"] = has_window(m);
  write_window(m, j);
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = ConfigReader::json::array();
  for (Index i = 1; i < m.layers(); i += 2)
    if (m.pattern[i] == '-') j["mlp_only_layers"].push_back(i / 2);
  j["num_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.routing.top_k;
  j["norm_topk_prob"] = m.moe.routing.normalize;
  j["moe_intermediate_size"] = m.moe.intermediate_size;
}

}  // namespace

StoredPlace layer_pair_place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.final_layernorm.weight") return {"model.norm.weight"};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0 || layer >= m.layers()) return {weight};
  const std::string_view feed_forward = "feed_forward.";
  std::string part = rest;
  if (rest.starts_with(feed_forward)) part = "mlp." + rest.substr(feed_forward.size());
  else if (layer % 2 == 1 && rest == "input_layernorm.weight") part = "post_attention_layernorm.weight";
  return {fmt::format("model.layers.{}.{}", layer / 2, part)};
}

namespace {

StoredPlace mixtral_place(const ModelConfig& m, const std::string& weight) {
  StoredPlace stored = layer_pair_place(m, weight);
  std::string& name = stored.name;
  for (const auto& [ours, theirs] :
       {std::pair{".mlp.", ".block_sparse_moe."}, {".gate_proj.", ".w1."}, {".up_proj.", ".w3."}, {".down_proj.", ".w2."}})
    if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, std::string_view(ours).size(), theirs);
  return stored;
}

// RoPE frequencies, which early published folders contain.
bool is_ignored_tensor(const std::string& tensor) { return tensor.ends_with(".rotary_emb.inv_freq"); }

}  // namespace

std::vector<Family> families() {
  std::vector<Family> all{{"llama", "LlamaForCausalLM", read_llama, write_llama, layer_pair_place, "", is_ignored_tensor},
                          {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2, layer_pair_place},
                          {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3, layer_pair_place, "", is_ignored_tensor},
                          {"mistral", "MistralForCausalLM", read_mistral, write_mistral, layer_pair_place},
                          {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral, mixtral_place},
                          {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe, layer_pair_place}};
  for (Family& f : all) f.ternary = f.read != read_mixtral && f.read != read_qwen3_moe;  // expert layers cannot be ternary
  return all;
}

}  // namespace gyr::llama
