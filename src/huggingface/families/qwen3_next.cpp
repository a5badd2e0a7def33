// SPDX-License-Identifier: BSD-3-Clause
// Qwen3-Next and the text model of Qwen3.5: three of four layers are gated delta nets, the others attention with an output
// gate and partial rotary embedding. One transformers layer is a mixer and an MLP or expert layer of ours. Qwen3-Next
// stores the projections of a gated delta net in one tensor, the rows of each key head together. Both store queries and
// output gate in one tensor, the rows of each head together.
#include <algorithm>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::qwen3_next {

namespace {

using json = ConfigReader::json;

constexpr const char* delta_kind = "linear_attention";  // value of layer_types, besides full_kind
constexpr Index usual_interval = 4;                     // every fourth mixer is attention, if there is no layer_types

void read_mixers(ConfigReader& r, Index default_layers) {
  ModelConfig& m = r.config.model;
  const Index layers = r.integer("num_hidden_layers", default_layers, 1, most_layers / 2);
  const Index interval = r.integer("full_attention_interval", usual_interval, 1, most_layers);
  const json& kinds = r.value("layer_types");
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), "layer_types", "is {}, which is not a list of {} layer types",
           r.text_of(kinds), layers);
  for (Index i = 0; i < layers; ++i) {
    const bool attends = kinds.is_null() ? (i + 1) % interval == 0 : kinds[i] == full_kind;
    r.demand(attends || kinds.is_null() || kinds[i] == delta_kind, "layer_types", "is {}; a layer type must be \"{}\" or \"{}\"", r.text_of(kinds),
             delta_kind, full_kind);
    m.pattern += attends ? "*-" : "G-";
  }
}

void read_attention(ConfigReader& r, Index num_heads, Index num_kv_heads) {
  AttentionConfig& a = r.config.model.attention;
  r.read_heads(num_heads, num_kv_heads);
  if (!r.given("head_dim")) a.head_dim = 256;
  a.qk_norm = a.output_gate = true;
  a.rotary_fraction = 0.25;
  r.demand(!r.flag("attention_bias", false), "attention_bias", "is true; only attention without biases is supported");
}

void read_delta(ConfigReader& r) {
  DeltaConfig& d = r.config.model.delta;
  d.num_heads = r.size("linear_num_value_heads", 32), d.num_key_heads = r.size("linear_num_key_heads", 16);
  d.head_dim = r.size("linear_value_head_dim", 128), d.key_dim = r.size("linear_key_head_dim", 128);
  d.conv_kernel = r.integer("linear_conv_kernel_dim", 4, 2, 16);
}

struct Defaults {
  Index vocab_size, hidden_size, layers, num_heads, num_kv_heads, intermediate_size;
};

void read_layers(ConfigReader& r, const Defaults& d) {
  ModelConfig& m = r.config.model;
  r.read_widths(d.vocab_size, d.hidden_size, false);
  read_mixers(r, d.layers);
  m.norm_offset = 1;
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-6);
  read_attention(r, d.num_heads, d.num_kv_heads);
  read_delta(r);
  m.mlp.intermediate_size = r.size("intermediate_size", d.intermediate_size);
  r.silu("hidden_act");
  r.read_rotary(1e4, {.stretched = true, .partial = true, .sections = true});
  r.read_tokens({}, {}, {}, 32768);
}

// MLP layers are expert layers at every decoder_sparse_step-th transformers layer, except those in mlp_only_layers.
void read_experts(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  const Index step = r.integer("decoder_sparse_step", 1, 1, most_layers), layers = m.layers() / 2;
  for (Index i = step - 1; i < layers; i += step) m.pattern[2 * i + 1] = 'E';
  const json& plain = r.value("mlp_only_layers");
  r.demand(plain.is_null() || plain.is_array(), "mlp_only_layers", "is {}, which is not a list", r.text_of(plain));
  for (const json& i : plain) m.pattern[2 * r.integer(i, "mlp_only_layers", 0, layers - 1) + 1] = '-';
  m.moe.experts = r.integer(r.given("num_local_experts") ? "num_local_experts" : "num_experts", 512, 1, most_experts);
  m.moe.routing.top_k = r.integer("num_experts_per_tok", 10, 1, m.moe.experts);
  m.moe.routing.normalize = r.flag("norm_topk_prob", true);
  m.moe.intermediate_size = r.size("moe_intermediate_size", 512);
  m.moe.shared_intermediate_size = r.size("shared_expert_intermediate_size", 512);
  m.moe.shared_gate = true;
  for (const char* key : {"output_router_logits", "router_aux_loss_coef"}) r.known(key);  // these keys affect only the training loss
}

void read_next(ConfigReader& r) {
  read_layers(r, {151936, 2048, 48, 16, 2, 5632});
  read_experts(r);
}
void read_text(ConfigReader& r) { read_layers(r, {248320, 4096, 32, 16, 4, 12288}); }

void write_layers(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  for (Index i = 0; i < m.layers(); i += 2) j["layer_types"].push_back(m.pattern[i] == '*' ? full_kind : delta_kind);
  j["attention_bias"] = false;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = "silu";
  j["rms_norm_eps"] = m.rms_norm_eps;
  const DeltaConfig& d = m.delta;
  j["linear_num_value_heads"] = d.num_heads, j["linear_num_key_heads"] = d.num_key_heads;
  j["linear_value_head_dim"] = d.head_dim, j["linear_key_head_dim"] = d.key_dim;
  j["linear_conv_kernel_dim"] = d.conv_kernel;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
  j["rope_parameters"]["partial_rotary_factor"] = j["partial_rotary_factor"] = m.attention.rotary_fraction;
}

void write_next(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_layers(c, j);
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = json::array();
  for (Index i = 1; i < m.layers(); i += 2)
    if (m.pattern[i] == '-') j["mlp_only_layers"].push_back(i / 2);
  j["num_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.routing.top_k;
  j["norm_topk_prob"] = m.moe.routing.normalize;
  j["moe_intermediate_size"] = m.moe.intermediate_size;
  j["shared_expert_intermediate_size"] = m.moe.shared_intermediate_size;
}

// Part of a tensor in which groups of rows of several weights alternate. A group has `run` rows of this weight, after
// `first` rows of others, and `step` rows in total.
StoredPlace alternating(std::string name, Index first, Index run, Index step, Index groups) {
  StoredPlace place{std::move(name), false, {first, groups * step}, groups * step, step};
  place.run = run;
  return place;
}

// Place of a mixer's weight. block: "model.layers.N.self_attn." or "model.layers.N.linear_attn."
StoredPlace mixer_place(const ModelConfig& m, const std::string& block, const std::string& part, bool by_key_head) {
  const AttentionConfig& a = m.attention;
  const Index E = a.head_dim;
  if (part == "gate_proj.weight" || (part == "q_proj.weight" && block.ends_with("self_attn.")))
    return alternating(block + "q_proj.weight", part[0] == 'g' ? E : 0, E, 2 * E, a.num_heads);
  if (block.ends_with("self_attn.") || part.find("_proj.") != 1) return {block + part};
  const DeltaConfig& d = m.delta;
  const Index K = d.key_dim, heads = d.num_heads / d.num_key_heads, V = heads * d.head_dim, q = d.num_key_heads * K;
  const char kind = part[0];  // of q, k, v, z, b and a
  if (!by_key_head) {
    if (kind == 'z' || kind == 'b' || kind == 'a') return {block + "in_proj_" + part.substr(0, 1) + ".weight"};
    const Index first = kind == 'q' ? 0 : kind == 'k' ? q : 2 * q;
    return {block + "in_proj_qkv.weight", false, {first, first + (kind == 'v' ? d.inner() : q)}, d.channels()};
  }
  if (kind == 'b' || kind == 'a') return alternating(block + "in_proj_ba.weight", kind == 'b' ? 0 : heads, heads, 2 * heads, d.num_key_heads);
  const Index first = kind == 'q' ? 0 : kind == 'k' ? K : kind == 'v' ? 2 * K : 2 * K + V;
  return alternating(block + "in_proj_qkvz.weight", first, kind == 'q' || kind == 'k' ? K : V, 2 * K + 2 * V, d.num_key_heads);
}

StoredPlace layer_place(const ModelConfig& m, const std::string& weight, bool by_key_head) {
  StoredPlace stored = llama::layer_pair_place(m, weight);
  std::string& name = stored.name;
  for (const std::string_view mixer : {".self_attn.", ".linear_attn."})
    if (const auto at = name.find(mixer); at != std::string::npos && name.starts_with("model.layers."))
      return mixer_place(m, name.substr(0, at + mixer.size()), name.substr(at + mixer.size()), by_key_head);
  for (const auto& [ours, theirs] : {std::pair<std::string_view, std::string_view>{".mlp.shared_experts.gate.", ".mlp.shared_expert_gate."},
                                     {".mlp.shared_experts.experts.0.", ".mlp.shared_expert."}})
    if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
  return stored;
}
StoredPlace next_place(const ModelConfig& m, const std::string& weight) { return layer_place(m, weight, true); }
StoredPlace text_place(const ModelConfig& m, const std::string& weight) { return layer_place(m, weight, false); }

// Multi-token prediction modules of published folders, which transformers ignores, too.
bool is_ignored_tensor(const std::string& tensor) { return tensor.starts_with("mtp."); }

}  // namespace

std::vector<Family> families() {
  return {{"qwen3_next", "Qwen3NextForCausalLM", read_next, write_next, next_place, "", is_ignored_tensor},
          {"qwen3_5_text", "Qwen3_5ForCausalLM", read_text, write_layers, text_place, "", is_ignored_tensor}};
}

}  // namespace gyr::qwen3_next
