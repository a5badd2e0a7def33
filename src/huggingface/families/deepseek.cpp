// SPDX-License-Identifier: BSD-3-Clause
// DeepSeek-V3 and GLM-4.5. One transformers layer is an attention layer and a SwiGLU layer or an expert layer of ours.
// The attention of DeepSeek-V3 is latent attention. Multi-token prediction (MTP) modules are stored as layers after the
// last one, each with its own copy of embedding and head.
#include "modules/objectives/multi_token.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr::deepseek {

namespace {

constexpr const char *mscale_key = "mscale_all_dim", *depths_key = "num_nextn_predict_layers";

// Moves the RoPE settings, which were read as those of ordinary attention, to latent attention.
void move_rope_settings(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  m.latent.rope_theta = m.attention.rope_theta, m.latent.rope_scaling = m.attention.rope_scaling;
  m.attention = {};
  const ConfigReader::json& rope = r.value(r.value("rope_scaling").empty() ? "rope_parameters" : "rope_scaling");
  if (rope.is_object() && rope.contains(mscale_key) && !rope[mscale_key].is_null()) m.latent.score_growth = r.finite(rope[mscale_key], mscale_key);
}

void write_positions(const LatentConfig& c, nlohmann::ordered_json& j) {
  AttentionConfig rotary;
  rotary.rope_theta = c.rope_theta, rotary.rope_scaling = c.rope_scaling;
  write_rotary(rotary, j);
  if (c.score_growth == 0) return;
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (j[key].is_object()) j[key][mscale_key] = c.score_growth;
}

void read_latent(ConfigReader& r) {
  LatentConfig& c = r.config.model.latent;
  c.num_heads = r.size("num_attention_heads", 128);
  const Index key_heads = r.value("num_key_value_heads").is_null() ? c.num_heads : r.size("num_key_value_heads", 128);
  r.demand(key_heads == c.num_heads, "num_key_value_heads", "is {}; with latent attention it must equal num_attention_heads {}", key_heads,
           c.num_heads);
  c.head_dim = r.size("qk_nope_head_dim", 128), c.rope_dim = r.size("qk_rope_head_dim", 64), c.v_head_dim = r.size("v_head_dim", 128);
  c.q_rank = r.given("q_lora_rank") && r.value("q_lora_rank").is_null() ? 0 : r.size("q_lora_rank", 1536);
  c.kv_rank = r.size("kv_lora_rank", 512);
  c.neighbours = r.flag("rope_interleave", true);
  c.bias = r.flag("attention_bias", false);
  c.norm_eps = 1e-6;  // fixed in transformers; rms_norm_eps does not apply here
  r.demand(r.value("head_dim").is_null() || r.size("head_dim", 0) == c.rope_dim, "head_dim",
           "is {}, but qk_rope_head_dim is {}; they must be equal, because transformers computes the RoPE frequencies of the latter with the former",
           r.text_of(r.value("head_dim")), c.rope_dim);
  r.known("qk_head_dim");
}

// Values of keys that a file lacks.
struct Defaults {
  Index layers, dense, experts, intermediate_size, groups, top_groups;
  double scale;
};

void read_experts(ConfigReader& r, const Defaults& d) {
  MoeConfig& c = r.config.model.moe;
  Routing& routing = c.routing;
  c.experts = r.integer(r.given("num_local_experts") ? "num_local_experts" : "n_routed_experts", d.experts, 1, most_experts);
  c.intermediate_size = r.size("moe_intermediate_size", d.intermediate_size);
  c.shared_intermediate_size = c.intermediate_size * r.integer("n_shared_experts", 1, 1, most_experts);
  routing.score = Routing::sigmoid;
  routing.top_k = r.integer("num_experts_per_tok", 8, 1, c.experts);
  routing.groups = r.integer("n_group", d.groups, 1, c.experts), routing.top_groups = r.integer("topk_group", d.top_groups, 1, routing.groups);
  routing.normalize = r.flag("norm_topk_prob", true);
  routing.scale = r.finite("routed_scaling_factor", d.scale);
  c.bias = true;
  for (const char* key : {"output_router_logits", "scoring_func", "topk_method", "aux_loss_alpha", "seq_aux", "ep_size", "moe_layer_freq"})
    r.known(key);
}

std::shared_ptr<const Objective> module_objective(Index depths, const std::string& layers, const std::string& pattern) {
  MultiToken m{depths, layers};
  m.usual = layers == last_block(pattern);
  return multi_token(m);
}

// Number of MTP modules (num_nextn_predict_layers). If the file does not give it, it is 1 for 61 layers as in the
// published model, whose layer 61 transformers ignores, and otherwise 0.
Index read_depths(ConfigReader& r, Index layers) {
  constexpr Index published = 61;
  Index depths = layers == published ? 1 : 0;
  for (const char* key : {"num_mtp_layers", depths_key}) depths = r.integer(key, depths, 0, most_layers);
  return depths;
}

// The first layers have an MLP, the others experts. `attention`: symbol of the attention layers.
void read_layers(ConfigReader& r, char attention, const Defaults& d) {
  ModelConfig& m = r.config.model;
  const Index layers = r.integer("num_hidden_layers", d.layers, 1, most_layers / 2),
              dense = r.integer("first_k_dense_replace", d.dense, 0, most_layers);
  for (Index i = 0; i < layers; ++i) m.pattern += {attention, i < dense ? '-' : 'E'};
  read_experts(r, d);
  if (const Index depths = read_depths(r, layers); depths > 0)
    r.config.ahead = module_objective(depths, {attention, layers < dense ? '-' : 'E'}, m.pattern);
  r.silu("hidden_act");
}

void read_deepseek_v3(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(129280, 7168, false);
  read_layers(r, 'L', {61, 3, 256, 2048, 8, 4, 2.5});
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-6);
  m.mlp.intermediate_size = r.size("intermediate_size", 18432);
  r.read_rotary(1e4, {.stretched = true});
  read_latent(r);
  r.known("pretraining_tp");
  r.read_tokens({}, 0, 1, 4096);
  move_rope_settings(r);
}

void write_layers(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["first_k_dense_replace"] = m.pattern.find('E') == std::string::npos ? m.layers() / 2 : Index(m.pattern.find('E')) / 2;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  const MoeConfig& e = m.moe;
  j["n_routed_experts"] = e.experts, j["num_experts_per_tok"] = e.routing.top_k;
  j["moe_intermediate_size"] = e.intermediate_size, j["n_shared_experts"] = e.shared_intermediate_size / e.intermediate_size;
  j["n_group"] = e.routing.groups, j["topk_group"] = e.routing.top_groups;
  j["norm_topk_prob"] = e.routing.normalize, j["routed_scaling_factor"] = e.routing.scale;
  if (m.objective->depths() > 0) j[depths_key] = m.objective->depths();
}

void write_deepseek_v3(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  const LatentConfig& l = m.latent;
  write_layers(c, j);
  j["num_attention_heads"] = l.num_heads, j["num_key_value_heads"] = l.num_heads;
  j["qk_nope_head_dim"] = l.head_dim, j["qk_rope_head_dim"] = l.rope_dim, j["v_head_dim"] = l.v_head_dim;
  j["q_lora_rank"] = l.q_rank > 0 ? nlohmann::ordered_json(l.q_rank) : nlohmann::ordered_json(nullptr);
  j["kv_lora_rank"] = l.kv_rank;
  j["rope_interleave"] = l.neighbours;
  j["attention_bias"] = l.bias;
  j["attention_dropout"] = m.dropout.attention;
  write_positions(l, j);
}

constexpr const char *partial_key = "partial_rotary_factor", *heads_normed_key = "use_qk_norm";

void read_glm4_moe(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(151552, 4096, false);
  read_layers(r, '*', {46, 1, 128, 1408, 1, 1, 1});
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  m.mlp.intermediate_size = r.size("intermediate_size", 10944);
  r.read_heads(96, 8);
  m.attention.qkv_bias = r.flag("attention_bias", false);  // o_proj has none
  m.attention.qk_norm = r.flag(heads_normed_key, false);
  m.attention.rotary_fraction = 0.5;
  r.read_rotary(1e4, {.partial = true});
  r.read_tokens({}, {}, {}, 131072);
}

void write_glm4_moe(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const AttentionConfig& a = c.model.attention;
  write_layers(c, j);
  write_heads(c.model, j);
  j["attention_bias"] = a.qkv_bias, j[heads_normed_key] = a.qk_norm;
  write_rotary(a, j);
  j[depths_key] = c.model.objective->depths();                             // 1 if it is not given
  j[partial_key] = j["rope_parameters"][partial_key] = a.rotary_fraction;  // 0.5 if it is not given
}

// An MTP module is stored as one more transformers layer with additional weights; the module's own layers are parts of
// it.
StoredPlace place(const ModelConfig& m, const std::string& weight) {
  const auto [depth, rest] = layer_name(weight, "mtp.");
  if (depth < 0) return llama::layer_pair_place(m, weight);
  const Index layer = m.layers() / 2 + depth;
  const auto [number, part] = layer_name(rest, "layers.");
  if (number < 0) return {fmt::format("model.layers.{}.{}{}", layer, rest.starts_with("norm.") ? "shared_head." : "", rest)};
  ModelConfig longer;
  longer.pattern = m.pattern + m.objective->head_layers();
  return llama::layer_pair_place(longer, fmt::format("model.layers.{}.{}", 2 * layer + number, part));
}

std::vector<std::string> copies(const ModelConfig& m, const std::string& weight) {
  std::vector<std::string> names;
  for (Index layer = m.layers() / 2; layer < m.layers() / 2 + m.objective->depths(); ++layer) {
    if (weight == embedding_name) names.push_back(fmt::format("model.layers.{}.embed_tokens.weight", layer));
    if (weight == (m.tie_word_embeddings ? embedding_name : head_name))
      names.push_back(fmt::format("model.layers.{}.shared_head.head.weight", layer));
  }
  return names;
}

bool is_ignored_tensor(const std::string& tensor) { return tensor.ends_with(".rotary_emb.inv_freq"); }

}  // namespace

std::vector<Family> families() {
  return {{"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3, write_deepseek_v3, place, "", is_ignored_tensor, copies},
          {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe, place, "", is_ignored_tensor, copies}};
}

}  // namespace gyr::deepseek
