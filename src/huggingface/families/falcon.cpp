// SPDX-License-Identifier: BSD-3-Clause
// Falcon with one key/value head (7B). One transformers layer is a layer of parallel attention and MLP, or an attention
// layer followed by an MLP layer. Weights of q, k and v are fused in one tensor.
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::falcon {

namespace {

void read_layers(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  const bool parallel = r.flag("parallel_attn", true);
  for (Index i = 0; i < layers; ++i) m.pattern += parallel ? "B" : "*-";
  m.norm = NormType::layer;
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-5);
}

void read_attention(ConfigReader& r) {
  AttentionConfig& a = r.config.model.attention;
  r.read_multi_head_attention(71), a.num_kv_heads = 1;
  r.demand(!r.flag("alibi", false), "alibi", "is true; only rotary position embeddings are supported");
  r.demand(!r.flag("new_decoder_architecture", false), "new_decoder_architecture", "is true; this is not supported");
  r.demand(r.flag("multi_query", true), "multi_query", "is false; only one key/value head is supported");
  const char* const norms = "num_ln_in_parallel_attn";
  r.demand(r.value(norms).is_null() || r.value(norms) == 1, norms, "is {}; only one norm per layer is supported", r.text_of(r.value(norms)));
  r.known("num_kv_heads");
  r.read_rotary(1e4, {.stretched = true});
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(65024, 4544, true);
  read_layers(r);
  read_attention(r);
  m.mlp.intermediate_size = r.value("ffn_hidden_size").is_null() ? 4 * m.hidden_size : r.size("ffn_hidden_size", 0);
  m.mlp.activation = r.activation("activation", Activation::gelu);
  m.mlp.gated = false;
  m.mlp.bias = m.attention.bias = r.flag("bias", false);
  m.dropout.residual = r.dropout("hidden_dropout", 0);
  r.read_tokens({}, 11, 11, 2048);
  r.known("apply_residual_connection_post_layernorm");
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  const bool parallel = m.pattern.find('B') != std::string::npos;
  write_widths(m, j);
  j["num_hidden_layers"] = parallel ? m.layers() : m.layers() / 2;
  j["num_attention_heads"] = m.attention.num_heads;
  j["parallel_attn"] = parallel;
  j["new_decoder_architecture"] = false;
  j["multi_query"] = true;
  j["alibi"] = false;
  j["bias"] = m.mlp.bias;
  j["ffn_hidden_size"] = m.mlp.intermediate_size;
  j["activation"] = ConfigReader::name_of(m.mlp.activation);
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  j["attention_dropout"] = m.dropout.attention, j["hidden_dropout"] = m.dropout.residual;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
}

StoredPlace part_of_layer(const ModelConfig& m, Index layer, const std::string& part) {
  const bool parallel = m.pattern[layer] == 'B';
  const std::string block = fmt::format("transformer.h.{}.", parallel ? layer : layer / 2), kind = part.substr(part.rfind('.'));
  const std::string name = part.substr(0, part.size() - kind.size());
  if (name == "input_layernorm") return {block + (m.pattern[layer] == '-' ? "post_attention_layernorm" : name) + kind};
  if (name == "self_attn.o_proj") return {block + "self_attention.dense" + kind};
  if (name == "feed_forward.up_proj") return {block + "mlp.dense_h_to_4h" + kind};
  if (name == "feed_forward.down_proj") return {block + "mlp.dense_4h_to_h" + kind};
  const Index q = m.attention.num_heads * m.attention.head_dim, k = m.attention.num_kv_heads * m.attention.head_dim;
  const Span rows = name == "self_attn.q_proj" ? Span{0, q} : name == "self_attn.k_proj" ? Span{q, q + k} : Span{q + k, q + 2 * k};
  return {block + "self_attention.query_key_value" + kind, false, rows, q + 2 * k};
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.embed_tokens.weight") return {"transformer.word_embeddings.weight"};
  const std::string_view last = "model.final_layernorm";
  if (weight.starts_with(last)) return {"transformer.ln_f" + weight.substr(last.size())};
  const auto [layer, part] = layer_name(weight);
  return layer < 0 ? StoredPlace{weight} : part_of_layer(m, layer, part);
}

}  // namespace

std::vector<Family> families() { return {{"falcon", "FalconForCausalLM", read, write, place}}; }

}  // namespace gyr::falcon
