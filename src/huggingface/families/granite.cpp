// SPDX-License-Identifier: BSD-3-Clause
// Granite 4 (GraniteMoeHybrid). One transformers layer is a Mamba-2 or attention layer and an expert or SwiGLU layer of
// ours. Embedding, attention scores, branch outputs and logits have multipliers. Gate and up are stored in one tensor,
// and the matrices of all experts, too.
#include <array>
#include <cmath>

#include "src/huggingface/families/families.hpp"
#include "src/huggingface/mixer_keys.hpp"

namespace gyr::granite {

namespace {

using json = ConfigReader::json;

constexpr MixerKeys mixer_keys{"mamba_n_heads", "mamba_d_head",     "mamba_n_groups",  "mamba_d_state",
                               "mamba_d_conv",  "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias"};
constexpr const char *mamba_kind = "linear_attention", *earlier_mamba_kind = "mamba", *earlier_full_kind = "attention";
constexpr const char* rotary_type = "rope";  // any other position_embedding_type means no position embedding (NoPE)

// Argument of an increasing or decreasing function f for which f(x) == y: the guess rounded to 15 digits, or a number
// next to it. A file that was read is written with the same numbers.
template <class F>
double inverse(double guess, double y, const F& f) {
  const double rounded = std::stod(fmt::format("{:.15g}", guess));
  if (f(rounded) == y) return rounded;
  for (double x = guess, i = 0; i < 4; ++i, x = std::nextafter(x, HUGE_VAL))
    if (f(x) == y) return x;
  for (double x = guess, i = 0; i < 4; ++i, x = std::nextafter(x, -HUGE_VAL))
    if (f(x) == y) return x;
  return guess;
}

void read_pattern(ConfigReader& r, char feed_forward) {
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  const char* const key = r.value("layer_types").is_null() ? "layers_block_type" : "layer_types";
  const json& kinds = r.value(key);
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), key, "is {}, which is not a list of {} layer types",
           r.text_of(kinds), layers);
  for (Index i = 0; i < layers; ++i) {
    const bool attends = !kinds.is_null() && (kinds[i] == full_kind || kinds[i] == earlier_full_kind);
    r.demand(attends || kinds.is_null() || kinds[i] == mamba_kind || kinds[i] == earlier_mamba_kind, key,
             "is {}; a layer type must be \"{}\" (Mamba-2) or \"{}\"", r.text_of(kinds), mamba_kind, full_kind);
    r.config.model.pattern += {attends ? '*' : 'M', feed_forward};
  }
}

void read_multipliers(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  m.embedding_multiplier = r.finite("embedding_multiplier", 1);
  m.lm_head_multiplier = 1 / r.positive("logits_scaling", 1);
  const double residual = r.finite("residual_multiplier", 1);
  m.attention.out_multiplier = m.mamba.out_multiplier = m.mlp.down_multiplier = m.moe.routing.scale = m.moe.shared_multiplier = residual;
  m.attention.key_multiplier = r.positive("attention_multiplier", 1) * std::sqrt(double(m.attention.head_dim));
}

void read_feed_forward(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  const Index experts = r.integer("num_local_experts", 8, 0, most_experts), shared = r.size("shared_intermediate_size", 1024);
  read_pattern(r, experts > 0 ? 'E' : '-');
  const Index inner = r.size("intermediate_size", 11008), top_k = r.integer("num_experts_per_tok", 2, 0, most_experts);
  m.mlp.intermediate_size = shared;
  if (experts == 0) return;
  r.demand(top_k > 0 && top_k <= experts, "num_experts_per_tok", "is {}; it must be between 1 and num_local_experts {}", top_k, experts);
  m.moe.experts = experts, m.moe.routing.top_k = top_k;
  m.moe.intermediate_size = inner, m.moe.shared_intermediate_size = shared;
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(32000, 4096, false);
  read_feed_forward(r);
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-6);
  r.read_heads(32, 0);
  m.attention.bias = r.flag("attention_bias", false);
  r.silu("hidden_act");
  const Index expanded = r.integer("mamba_expand", 2, 1, widest) * m.hidden_size, heads = r.size("mamba_n_heads", 128);
  m.mamba.num_heads = heads, m.mamba.head_dim = std::max<Index>(1, expanded / heads);
  m.mamba.num_groups = 1, m.mamba.state_size = 256, m.mamba.chunk_size = 256;
  read_mixer(r, mixer_keys);
  r.demand(m.mamba.inner() == expanded, "mamba_expand", "times hidden_size is {}, but mamba_n_heads times mamba_d_head is {}; they must be equal",
           expanded, m.mamba.inner());
  r.read_time_step_limit("time_step_limit");
  read_multipliers(r);
  const bool rotates = r.value("position_embedding_type") == rotary_type;
  if (rotates) r.read_rotary(1e4, {.stretched = true});
  else m.attention.rotary_fraction = 0;
  r.read_tokens({}, 1, 2, 2048);
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) r.known(key);  // without an effect if there is no RoPE
  for (const char* key : {"output_router_logits", "router_aux_loss_coef", "init_method", "normalization_function"}) r.known(key);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  const bool experts = m.pattern.find('E') != std::string::npos, attends = m.pattern.find('*') != std::string::npos;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  for (Index i = 0; i < m.layers(); i += 2) j["layer_types"].push_back(m.pattern[i] == '*' ? earlier_full_kind : earlier_mamba_kind);
  j["attention_bias"] = m.attention.bias;
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["hidden_act"] = "silu";
  j["num_local_experts"] = experts ? m.moe.experts : 0, j["num_experts_per_tok"] = experts ? m.moe.routing.top_k : 0;
  j["intermediate_size"] = experts ? m.moe.intermediate_size : m.mlp.intermediate_size;
  j["shared_intermediate_size"] = experts ? m.moe.shared_intermediate_size : m.mlp.intermediate_size;
  j["mamba_expand"] = m.mamba.inner() / m.hidden_size;
  write_mixer(m.mamba, mixer_keys, j);
  write_time_step_limit(m.mamba, j);
  const double root = std::sqrt(double(m.attention.head_dim));
  j["embedding_multiplier"] = m.embedding_multiplier;
  j["logits_scaling"] = inverse(1 / m.lm_head_multiplier, m.lm_head_multiplier, [](double x) { return 1 / x; });
  j["residual_multiplier"] = attends ? m.attention.out_multiplier : m.mamba.out_multiplier;
  j["attention_multiplier"] =
      attends ? inverse(m.attention.key_multiplier / root, m.attention.key_multiplier, [&](double x) { return x * root; }) : 1 / root;
  j["position_embedding_type"] = m.attention.rotary_dim() > 0 ? rotary_type : "nope";
  j["max_position_embeddings"] = c.positions;
  if (m.attention.rotary_dim() > 0) write_rotary(m.attention, j);
}

// Gate (first half of the rows) or up of an MLP with `inner` channels, which are stored in one tensor; or down.
StoredPlace matrix_place(const std::string& block, const std::string& matrix, Index inner) {
  if (matrix.starts_with("down_proj.")) return {block + "output_linear.weight"};
  const Index first = matrix.starts_with("up_proj.") ? inner : 0;
  return {block + "input_linear.weight", false, {first, first + inner}, 2 * inner};
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.final_layernorm.weight") return {"model.norm.weight"};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0 || layer >= m.layers()) return {weight};
  const std::string block = fmt::format("model.layers.{}.", layer / 2), shared = block + "shared_mlp.", routed = block + "block_sparse_moe.";
  const std::string_view feed_forward = "feed_forward.", shared_expert = "shared_experts.";
  if (!rest.starts_with(feed_forward))
    return {block + (layer % 2 == 1 && rest == "input_layernorm.weight" ? "post_attention_layernorm.weight" : rest)};
  const std::string part = rest.substr(feed_forward.size());
  if (part == "gate.weight") return {routed + "router.layer.weight"};
  if (const auto [expert, matrix] = layer_name(part, "experts."); expert >= 0) {
    StoredPlace stored = matrix_place(routed, matrix, m.moe.intermediate_size);
    stored.member = expert, stored.members = m.moe.experts;
    return stored;
  }
  if (part.starts_with(shared_expert)) return matrix_place(shared, part.substr(shared_expert.size()), m.moe.shared_intermediate_size);
  return matrix_place(shared, part, m.mlp.intermediate_size);
}

}  // namespace

std::vector<Family> families() { return {{"granitemoehybrid", "GraniteMoeHybridForCausalLM", read, write, place}}; }

}  // namespace gyr::granite
