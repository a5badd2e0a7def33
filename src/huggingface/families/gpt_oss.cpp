// SPDX-License-Identifier: BSD-3-Clause
// gpt-oss. One transformers layer is an attention layer with sinks, every other one with a sliding window, and an
// expert layer with biases. All experts of a layer are stored in one tensor, in which columns of gate_proj and up_proj
// are interleaved. In the published folders these tensors are in MXFP4 blocks.
#include <charconv>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::gpt_oss {

namespace {

constexpr std::pair<const char*, double> activation_keys[] = {{"swiglu_limit", 7}, {"swiglu_alpha", 1.702}};  // the only supported value of each key

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(201088, 2880, false);
  const Index layers = r.integer("num_hidden_layers", 36, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*E";
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  r.read_heads(64, 8);
  if (!r.given("head_dim")) m.attention.head_dim = 64;
  m.attention.sinks = true;
  m.attention.bias = r.flag("attention_bias", true);
  m.window.size = r.integer("sliding_window", 128, 1, longest);
  read_layer_types(r, true, [](Index i) { return i % 2 == 0; });
  r.demand(!r.value("rope_scaling").empty() || !r.value("rope_parameters").is_null(), "rope_parameters",
           "is missing, and so is rope_scaling; transformers would then apply a default RoPE scaling: write the scaling explicitly");
  r.read_rotary(1.5e5, {.stretched = true});
  r.second_name("num_experts", "num_local_experts");
  m.moe.experts = r.integer("num_local_experts", 128, 1, most_experts);
  m.moe.routing.top_k = r.integer(r.given("experts_per_token") ? "experts_per_token" : "num_experts_per_tok", 4, 1, m.moe.experts);
  m.moe.intermediate_size = r.size("intermediate_size", 2880);
  m.moe.activation = Activation::clamped_swiglu;
  m.moe.router_bias = m.moe.expert_bias = true;
  r.silu("hidden_act");
  for (const auto& [key, value] : activation_keys)
    r.demand(r.finite(key, value) == value, key, "is {}; only {} is supported", r.finite(key, value), value);
  r.read_tokens({}, {}, {}, 131072);
  for (const char* key : {"num_experts_per_tok", "initial_context_length", "output_router_logits", "router_aux_loss_coef"}) r.known(key);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["intermediate_size"] = m.moe.intermediate_size;
  j["hidden_act"] = "silu";
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["attention_bias"] = m.attention.bias;
  j["max_position_embeddings"] = c.positions;
  j["sliding_window"] = m.window.size;
  write_layer_types(m, j);
  j["num_local_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = j["experts_per_token"] = m.moe.routing.top_k;
  for (const auto& [key, value] : activation_keys) j[key] = value;
  write_rotary(m.attention, j);
}

// Place of a weight of one expert. `part` is the expert's index and the weight's name, e.g. "7.gate_proj.weight".
StoredPlace part_of_experts(const MoeConfig& c, const std::string& block, const std::string& part) {
  StoredPlace place;
  std::from_chars(part.data(), part.data() + part.size(), place.member);
  place.members = c.experts;
  const std::string name = part.substr(part.find('.') + 1);
  const bool matrix = name.ends_with(".weight"), down = name.starts_with("down_proj");
  place.name = block + (down ? "down_proj" : "gate_up_proj") + (matrix ? "" : "_bias");
  place.transposed = matrix;
  if (down) return place;
  place.stack = 2 * c.intermediate_size, place.step = 2;
  place.rows = {name.starts_with("gate_proj") ? 0 : 1, place.stack};
  return place;
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  StoredPlace stored = llama::layer_pair_place(m, weight);
  const std::string_view gate = ".mlp.gate.", experts = ".mlp.experts.";
  if (const auto at = stored.name.find(gate); at != std::string::npos) stored.name.replace(at, gate.size(), ".mlp.router.");
  const auto at = stored.name.find(experts);
  if (at == std::string::npos) return stored;
  return part_of_experts(m.moe, stored.name.substr(0, at + experts.size()), stored.name.substr(at + experts.size()));
}

}  // namespace

std::vector<Family> families() {
  Family family{"gpt_oss", "GptOssForCausalLM", read, write, place};
  family.blocks = true;
  return {family};
}

}  // namespace gyr::gpt_oss
