// SPDX-License-Identifier: BSD-3-Clause
// Hybrid models that mix Mamba-2, attention, MLP and expert layers. Bamba: one transformers layer is a mixer layer and a
// SwiGLU layer of ours. Nemotron-H and Nemotron-3: one transformers layer is one layer of ours, as in Mamba-2-Hybrid, and
// attention has no position embedding. Experts have no gate, and may work on a latent of the stream.
#include <algorithm>

#include "src/deck/yaml.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/mixer_keys.hpp"

namespace gyr::hybrids {

namespace {

using json = ConfigReader::json;

// ---- Bamba ----

constexpr MixerKeys bamba_keys{"mamba_n_heads", "mamba_d_head",     "mamba_n_groups",  "mamba_d_state",
                               "mamba_d_conv",  "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias"};

void read_bamba_pattern(ConfigReader& r) {
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  std::string mixers(std::size_t(layers), 'M');
  const json& indices = r.value("attn_layer_indices");
  r.demand(indices.is_null() || indices.is_array(), "attn_layer_indices", "is {}, which is not a list", r.text_of(indices));
  for (const json& i : indices) mixers[std::size_t(r.integer(i, "attn_layer_indices", 0, layers - 1))] = '*';
  for (const char mixer : mixers) r.config.model.pattern += {mixer, '-'};
}

void read_bamba(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(128000, 4096, false);
  read_bamba_pattern(r);
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  r.read_heads(32, 8);
  m.attention.bias = r.flag("attention_bias", false);
  m.mlp.intermediate_size = r.size("intermediate_size", 14336);
  m.mlp.activation = r.activation("hidden_act", Activation::silu);
  m.mlp.bias = r.flag("mlp_bias", false);
  r.silu("hidden_act");  // hidden_act also applies to the Mamba-2 mixer, which supports only silu
  m.mamba.num_heads = 128, m.mamba.head_dim = 64, m.mamba.num_groups = 1, m.mamba.state_size = 256, m.mamba.chunk_size = 256;
  read_mixer(r, bamba_keys);
  const Index expanded = r.integer("mamba_expand", 2, 1, widest) * m.hidden_size;
  r.demand(m.mamba.inner() == expanded, "mamba_expand", "times hidden_size is {}, but mamba_n_heads times mamba_d_head is {}; they must be equal",
           expanded, m.mamba.inner());
  r.read_time_step_limit("time_step_limit");
  m.attention.rotary_fraction = 0.5;
  const char* const part = "partial_rotary_factor";
  r.demand(r.value(part).is_null() || r.value(part) == m.attention.rotary_fraction, part,
           "is {}, which transformers ignores here in favour of {}; write it into rope_parameters", r.text_of(r.value(part)),
           m.attention.rotary_fraction);
  r.read_rotary(1e4, {.partial = true});
  r.read_tokens(0, 1, 2, 262144);
  r.known("z_loss_coefficient"), r.known("attn_rotary_emb");
}

void write_bamba(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["attn_layer_indices"] = json::array();
  for (Index i = 0; i < m.layers(); i += 2)
    if (m.pattern[i] == '*') j["attn_layer_indices"].push_back(i / 2);
  j["attention_bias"] = m.attention.bias;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["mlp_bias"] = m.mlp.bias;
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["mamba_expand"] = m.mamba.inner() / m.hidden_size;
  write_mixer(m.mamba, bamba_keys, j);
  write_time_step_limit(m.mamba, j);
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
  j["rope_parameters"]["partial_rotary_factor"] = m.attention.rotary_fraction;
}

StoredPlace bamba_place(const ModelConfig& m, const std::string& weight) {
  const auto [layer, part] = layer_name(weight);
  if (layer < 0) return {weight};
  const bool second = m.pattern[layer] == '-' && part == "input_layernorm.weight";
  return {fmt::format("model.layers.{}.{}", layer / 2, second ? "pre_ff_layernorm.weight" : part)};
}

// ---- Nemotron-H ----

constexpr MixerKeys nemotron_keys{"mamba_num_heads", "mamba_head_dim", "n_groups",      "ssm_state_size",
                                  "conv_kernel",     "chunk_size",     "use_conv_bias", "use_bias"};

struct LayerKind {
  char symbol;
  const char *name, *earlier;
};
constexpr LayerKind layer_kinds[] = {
    {'M', "linear_attention", "mamba"}, {'*', "full_attention", "attention"}, {'-', "mlp", "mlp"}, {'E', "moe", "moe"}};

// Reads the layer pattern: a list of layer types or, in earlier files, Megatron's pattern string.
void read_nemotron_pattern(ConfigReader& r) {
  std::string& pattern = r.config.model.pattern;
  const char* const key = r.value("layers_block_type").is_null() ? "layer_types" : "layers_block_type";
  if (r.given("layers_block_type")) r.second_name("layer_types", "layers_block_type");
  const json& kinds = r.value(key);
  if (kinds.is_null()) {
    pattern = r.text("hybrid_override_pattern", "");
    r.demand(!pattern.empty() && pattern.find_first_not_of("M*-E") == std::string::npos, "hybrid_override_pattern",
             "is \"{}\"; layers may be M (Mamba-2), * (attention), - (MLP) and E (experts)", shown(pattern));
    return;
  }
  r.known("hybrid_override_pattern");
  r.demand(kinds.is_array() && !kinds.empty() && Index(kinds.size()) <= most_layers, key, "is {}, which is not a list of layer types",
           r.text_of(kinds));
  for (const json& kind : kinds) {
    const auto known =
        std::find_if(std::begin(layer_kinds), std::end(layer_kinds), [&](const LayerKind& k) { return kind == k.name || kind == k.earlier; });
    r.demand(known != std::end(layer_kinds), key, "has {}; supported are linear_attention (Mamba-2), full_attention, mlp and moe", r.text_of(kind));
    pattern += known->symbol;
  }
}

// transformers clamps every time step dt from below to time_step_min (mamba_dt_min in later files), and ignores
// time_step_limit.
void read_nemotron_steps(ConfigReader& r) {
  MambaConfig& m = r.config.model.mamba;
  const char* const least = r.given("mamba_dt_min") ? "mamba_dt_min" : "time_step_min";
  m.dt_low = r.not_negative(least, 1e-3);
  if (m.dt_low > 0) m.dt_init_low = m.dt_low;
  m.dt_init_high = r.positive(r.given("mamba_dt_max") ? "mamba_dt_max" : "time_step_max", 0.1);
  r.known("time_step_limit"), r.known("mamba_dt_limit"), r.known("mamba_dt_init_floor");
}

// Experts of Nemotron-3. The shared expert has a size of its own, whatever n_shared_experts is.
void read_nemotron_experts(ConfigReader& r) {
  MoeConfig& c = r.config.model.moe;
  Routing& routing = c.routing;
  for (const char* key : {"moe_shared_expert_overlap", "n_shared_experts", "output_router_logits"}) r.known(key);
  const Index experts = r.integer("n_routed_experts", 8, 1, most_experts), inner = r.size("moe_intermediate_size", 7688),
              shared = r.size("moe_shared_expert_intermediate_size", 7688), top_k = r.integer("num_experts_per_tok", 2, 1, most_experts),
              groups = r.integer("n_group", 1, 1, most_experts), top_groups = r.integer("topk_group", 1, 1, most_experts);
  const bool normalize = r.flag("norm_topk_prob", true);
  const double scale = r.finite("routed_scaling_factor", 1);
  const Index latent = r.value("moe_latent_size").is_null() ? 0 : r.size("moe_latent_size", 0);
  if (r.config.model.pattern.find('E') == std::string::npos) return;
  r.demand(!r.config.model.mlp.bias, "mlp_bias", "is true; with experts, only MLPs without biases are supported");
  c.gated = false, c.activation = r.config.model.mlp.activation, c.bias = true;
  c.experts = experts, c.intermediate_size = inner, c.shared_intermediate_size = shared, c.latent_size = latent;
  routing.score = Routing::sigmoid, routing.normalize = normalize, routing.scale = scale;
  routing.top_k = top_k, routing.groups = groups, routing.top_groups = top_groups;
}

void read_nemotron(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(131072, 4096, false);
  read_nemotron_pattern(r);
  r.demand(!r.given("num_hidden_layers") || r.integer("num_hidden_layers", 0, 1, most_layers) == m.layers(), "num_hidden_layers",
           "is {}, but the layer pattern has {} layers", r.text_of(r.value("num_hidden_layers")), m.layers());
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-5);
  r.read_heads(32, 8);
  m.attention.rotary_fraction = 0;
  m.mlp.intermediate_size = r.size("intermediate_size", 21504);
  m.mlp.activation = r.activation("mlp_hidden_act", Activation::relu2);
  m.mlp.gated = false;
  m.mlp.bias = r.flag("mlp_bias", false);
  m.mamba.num_heads = 128, m.mamba.head_dim = 64, m.mamba.num_groups = 8, m.mamba.state_size = 128;
  read_mixer(r, nemotron_keys);
  r.silu("mamba_hidden_act");
  read_nemotron_steps(r);
  r.read_tokens(0, 1, 2, 4096);
  for (const char* key : {"attention_bias", "expand", "hidden_dropout", "mamba_proj_bias", "mamba_ssm_cache_dtype", "rescale_prenorm_residual",
                          "residual_in_fp32", "use_mamba_kernels", "mtp_layers_block_type", "num_nextn_predict_layers"})
    r.known(key);
  read_nemotron_experts(r);
}

void write_nemotron_experts(const MoeConfig& c, nlohmann::ordered_json& j) {
  j["n_routed_experts"] = c.experts, j["num_experts_per_tok"] = c.routing.top_k;
  j["moe_intermediate_size"] = c.intermediate_size, j["moe_shared_expert_intermediate_size"] = c.shared_intermediate_size;
  j["moe_latent_size"] = c.latent_size > 0 ? nlohmann::ordered_json(c.latent_size) : nlohmann::ordered_json(nullptr);
  j["n_group"] = c.routing.groups, j["topk_group"] = c.routing.top_groups;
  j["norm_topk_prob"] = c.routing.normalize, j["routed_scaling_factor"] = c.routing.scale;
}

void write_nemotron(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers();
  j["layers_block_type"] = json::array();
  for (const char symbol : m.pattern)
    for (const LayerKind& kind : layer_kinds)
      if (kind.symbol == symbol) j["layers_block_type"].push_back(kind.earlier);
  j["hybrid_override_pattern"] = m.pattern;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["mlp_hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["mlp_bias"] = m.mlp.bias;
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  write_mixer(m.mamba, nemotron_keys, j);
  j["expand"] = std::max<Index>(1, m.mamba.inner() / m.hidden_size);
  j["mamba_hidden_act"] = "silu";
  j["time_step_min"] = m.mamba.dt_low;
  j["time_step_max"] = m.mamba.dt_init_high;
  j["max_position_embeddings"] = c.positions;
  if (m.pattern.find('E') != std::string::npos) write_nemotron_experts(m.moe, j);
}

StoredPlace nemotron_place(const ModelConfig&, const std::string& weight) {
  if (weight == "model.embed_tokens.weight") return {"backbone.embeddings.weight"};
  if (weight == "model.final_layernorm.weight") return {"backbone.norm_f.weight"};
  const auto [layer, part] = layer_name(weight);
  if (layer < 0) return {weight};
  const std::string name = part.substr(part.find('.') + 1);  // part of the name after mamba., self_attn. or feed_forward.
  return {fmt::format("backbone.layers.{}.{}", layer, part == "input_layernorm.weight" ? "norm.weight" : "mixer." + name)};
}

// Multi-token prediction modules of published folders, which transformers ignores, too.
bool is_ignored_tensor(const std::string& tensor) { return tensor.starts_with("mtp."); }

}  // namespace

std::vector<Family> families() {
  return {{"bamba", "BambaForCausalLM", read_bamba, write_bamba, bamba_place},
          {"nemotron_h", "NemotronHForCausalLM", read_nemotron, write_nemotron, nemotron_place, "", is_ignored_tensor}};
}

}  // namespace gyr::hybrids
