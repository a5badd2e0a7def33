// SPDX-License-Identifier: BSD-3-Clause
// GPT-2. One transformers layer is an attention layer and an MLP layer of ours, with LayerNorm, biases in all linear
// layers, and learned positions. Matrices are stored transposed, and those of q, k and v are fused in one tensor.
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::gpt2 {

namespace {

using json = ConfigReader::json;

void read_widths(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  m.vocab_size = r.integer("vocab_size", 50257, 2, most_tokens);
  m.hidden_size = r.size("n_embd", 768);
  m.init_std = r.not_negative("initializer_range", 0.02);
  m.tie_word_embeddings = r.flag("tie_word_embeddings", true);
  m.positions = r.integer("n_positions", 1024, 1, longest);
  m.norm = NormType::layer;
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-5);
  const Index layers = r.integer("n_layer", 12, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
}

void read_attention(ConfigReader& r) {
  const ModelConfig& m = r.config.model;
  AttentionConfig& a = r.config.model.attention;
  a.num_heads = a.num_kv_heads = r.size("n_head", 12);
  r.demand(m.hidden_size % a.num_heads == 0, "n_head", "is {}, which does not divide n_embd {}", a.num_heads, m.hidden_size);
  a.head_dim = m.hidden_size / a.num_heads;
  a.rotary_fraction = 0;
  a.bias = true;
  r.demand(r.flag("scale_attn_weights", true), "scale_attn_weights", "is false; only scores scaled by 1/sqrt(head_dim) are supported");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    r.demand(!r.flag(key, false), key, "is true; this is not supported");
}

void read_mlp(ConfigReader& r) {
  MlpConfig& m = r.config.model.mlp;
  m.intermediate_size = r.value("n_inner").is_null() ? 4 * r.config.model.hidden_size : r.size("n_inner", 0);
  m.activation = r.activation("activation_function", Activation::gelu_tanh);
  m.gated = false;
  m.bias = true;
}

void read(ConfigReader& r) {
  using Names = std::pair<const char*, const char*>;
  for (const auto& [second, name] : {Names{"hidden_size", "n_embd"}, Names{"num_hidden_layers", "n_layer"}, Names{"num_attention_heads", "n_head"},
                                     Names{"max_position_embeddings", "n_positions"}})
    r.second_name(second, name);
  read_widths(r);
  read_attention(r);
  read_mlp(r);
  r.read_tokens({}, 50256, 50256, r.config.model.positions);
  r.config.model.dropout = {r.dropout("embd_pdrop", 0.1), r.dropout("resid_pdrop", 0.1), r.dropout("attn_pdrop", 0.1)};
  for (const char* key : {"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                          "summary_use_proj"})
    r.known(key);
  r.config.positions = r.config.model.positions;
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  j["vocab_size"] = m.vocab_size;
  j["n_embd"] = m.hidden_size;
  j["n_layer"] = m.layers() / 2;
  j["n_head"] = m.attention.num_heads;
  j["n_positions"] = m.positions;
  j["n_inner"] = m.mlp.intermediate_size;
  j["activation_function"] = ConfigReader::name_of(m.mlp.activation);
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  j["initializer_range"] = m.init_std;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
  j["attn_pdrop"] = m.dropout.attention, j["embd_pdrop"] = m.dropout.embedding, j["resid_pdrop"] = m.dropout.residual;
}

// Place of the weight or bias of a linear layer. Its matrix is stored transposed.
StoredPlace linear(const std::string& stored, bool matrix) { return {stored + (matrix ? ".weight" : ".bias"), matrix}; }

StoredPlace part_of_layer(const ModelConfig& m, Index layer, const std::string& part) {
  const std::string block = fmt::format("transformer.h.{}.", layer / 2);
  const bool attention = layer % 2 == 0, matrix = part.ends_with(".weight");
  const std::string name = part.substr(0, part.rfind('.'));
  if (name == "input_layernorm") return {block + (attention ? "ln_1" : "ln_2") + part.substr(name.size())};
  if (name == "self_attn.o_proj") return linear(block + "attn.c_proj", matrix);
  if (name == "feed_forward.up_proj") return linear(block + "mlp.c_fc", matrix);
  if (name == "feed_forward.down_proj") return linear(block + "mlp.c_proj", matrix);
  const Index rows = m.attention.num_heads * m.attention.head_dim, third = name == "self_attn.q_proj" ? 0 : name == "self_attn.k_proj" ? 1 : 2;
  StoredPlace place = linear(block + "attn.c_attn", matrix);
  place.rows = {third * rows, (third + 1) * rows}, place.stack = 3 * rows;
  return place;
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.embed_tokens.weight") return {"transformer.wte.weight"};
  if (weight == "model.embed_positions.weight") return {"transformer.wpe.weight"};
  const std::string_view last = "model.final_layernorm";
  if (weight.starts_with(last)) return {"transformer.ln_f" + weight.substr(last.size())};
  const auto [layer, part] = layer_name(weight);
  return layer < 0 ? StoredPlace{weight} : part_of_layer(m, layer, part);
}

// Causal attention masks, which early published folders contain.
bool is_ignored_tensor(const std::string& tensor) { return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias"); }

}  // namespace

std::vector<Family> families() { return {{"gpt2", "GPT2LMHeadModel", read, write, place, "transformer.", is_ignored_tensor}}; }

}  // namespace gyr::gpt2
