// SPDX-License-Identifier: BSD-3-Clause
// T5, an encoder-decoder. Encoder layers are an attention layer and an MLP layer of ours; decoder layers have
// cross-attention between the two. There are no biases in linear layers. Positions enter only through a relative bias
// that is added to the attention scores, which are not scaled. The first version ties the head and scales its input.
#include <array>
#include <cmath>

#include "kernels/ops/distance_bias.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/span_corruption.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr::t5 {

namespace {

constexpr std::string_view of_encoder = "*-", of_decoder = "*X-";

std::string repeated(std::string_view layers, Index times) {
  std::string all;
  for (Index i = 0; i < times; ++i) all += layers;
  return all;
}

void read_layers(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  const Index layers = r.integer("num_layers", 6, 1, most_layers / 8);
  m.pattern = repeated(of_encoder, layers) + encoder_end + repeated(of_decoder, r.integer("num_decoder_layers", layers, 1, most_layers / 8));
  AttentionConfig& a = m.attention;
  a.num_heads = a.num_kv_heads = r.size("num_heads", 8);
  a.head_dim = r.size("d_kv", 64);
  a.rotary_fraction = 0;
  a.key_multiplier = std::sqrt(double(a.head_dim));  // cancels our scaling of the scores by 1/sqrt(head_dim)
  a.relative_bias = {r.integer("relative_attention_num_buckets", 32, 4, DistanceBuckets::most),
                     r.integer("relative_attention_max_distance", 128, 1, longest)};
}

void read_mlp(ConfigReader& r) {
  MlpConfig& m = r.config.model.mlp;
  m.intermediate_size = r.size("d_ff", 2048);
  const std::string projection = r.text("feed_forward_proj", "relu");
  const std::string_view gated = "gated-";
  m.gated = projection.starts_with(gated);
  const std::string name = projection == "gated-gelu" ? "gelu_new" : m.gated ? projection.substr(gated.size()) : projection;
  m.activation = r.find_activation(name, "feed_forward_proj");
  // Later versions of transformers write the derived keys is_gated_act and dense_act_fn, which then take precedence.
  m.gated = r.flag("is_gated_act", m.gated);
  if (r.given("dense_act_fn")) m.activation = r.find_activation(r.text("dense_act_fn", ""), "dense_act_fn");
}

void read(ConfigReader& r) {
  using Names = std::pair<const char*, const char*>;
  for (const auto& [second, name] : {Names{"hidden_size", "d_model"}, Names{"num_attention_heads", "num_heads"},
                                     Names{"num_hidden_layers", "num_layers"}, Names{"head_dim", "d_kv"}})
    r.second_name(second, name);
  ModelConfig& m = r.config.model;
  m.vocab_size = r.integer("vocab_size", 32128, 2, most_tokens);
  m.hidden_size = r.size("d_model", 512);
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-6);
  // transformers 5 writes tie_word_embeddings = true for every T5, and untied models then have scale_decoder_outputs =
  // false. It ties the head if lm_head.weight is not stored or equals the embedding.
  const bool tied = r.flag("tie_word_embeddings", true), scales = r.flag("scale_decoder_outputs", tied);
  m.tie_word_embeddings = tied;
  r.config.weights_decide_tie = !tied || !scales;
  if (scales) m.lm_head_multiplier = 1 / std::sqrt(double(m.hidden_size));
  read_layers(r);
  read_mlp(r);
  r.read_tokens(0, {}, 1, 512);
  m.decoder_start_token_id = std::int32_t(r.integer("decoder_start_token_id", std::max(0, m.pad_token_id), 0, m.vocab_size - 1));
  m.pad_token_id = -1;  // the embedding of the padding token is trained like any other
  m.objective = r.config.end_tokens.empty() ? span_corruption() : span_corruption({.end_token = Token(r.config.end_tokens[0])});
  const double dropped = r.dropout("dropout_rate", 0.1);
  m.dropout.embedding = m.dropout.residual = m.dropout.attention = dropped;
  if (dropped > 0 && r.given("dropout_rate")) r.note("dropout_rate is {}; it is not applied inside MLPs and after the final norms", dropped);
  r.demand(r.flag("is_encoder_decoder", true), "is_encoder_decoder", "is false; an encoder without a decoder is not supported");
  for (const char* key : {"classifier_dropout", "initializer_factor", "n_positions", "output_past", "pad_token_id"}) r.carry(key);
  r.known("is_decoder");
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  const AttentionConfig& a = m.attention;
  const Index encoder = layers_of_encoder(m);
  j["vocab_size"] = m.vocab_size;
  j["d_model"] = m.hidden_size;
  j["d_kv"] = a.head_dim;
  j["d_ff"] = m.mlp.intermediate_size;
  j["num_layers"] = encoder / Index(of_encoder.size());
  j["num_decoder_layers"] = (m.layers() - encoder) / Index(of_decoder.size());
  j["num_heads"] = a.num_heads;
  j["relative_attention_num_buckets"] = a.relative_bias.buckets;
  j["relative_attention_max_distance"] = a.relative_bias.max_distance;
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  j["dropout_rate"] = m.dropout.residual;
  const std::string name = ConfigReader::name_of(m.mlp.activation);
  j["feed_forward_proj"] = !m.mlp.gated ? name : name == "gelu_new" ? "gated-gelu" : "gated-" + name;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
  j["scale_decoder_outputs"] = m.lm_head_multiplier != 1;
  j["is_encoder_decoder"] = true;
  j["decoder_start_token_id"] = j["pad_token_id"] = m.decoder_start_token_id;
}

// Place of a weight of encoder or decoder. Each sublayer of a transformers block is one layer of ours.
StoredPlace part_of(const char* stack, Index layer, std::string_view kinds, const std::string& part) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> branches{
      {{"self_attn.", "SelfAttention."}, {"cross_attn.", "EncDecAttention."}, {"feed_forward.", "DenseReluDense."}}};
  const Index width = Index(kinds.size());
  const std::string block = fmt::format("{}.block.{}.layer.{}.", stack, layer / width, layer % width);
  if (part == "input_layernorm.weight") return {block + "layer_norm.weight"};
  for (const auto& [ours, theirs] : branches)
    if (part.starts_with(ours)) return {block + std::string(theirs) + part.substr(ours.size())};
  return {block + part};
}

std::string matrix_called(const std::string& part, bool gated) {
  const auto at = part.find('.') + 1;
  const std::string name = part.substr(at, part.find('.', at) - at);
  for (const auto& [ours, theirs] : {std::pair{"q_proj", "q"},
                                     {"k_proj", "k"},
                                     {"v_proj", "v"},
                                     {"o_proj", "o"},
                                     {"gate_proj", "wi_0"},
                                     {"up_proj", gated ? "wi_1" : "wi"},
                                     {"down_proj", "wo"}})
    if (name == ours) return part.substr(0, at) + theirs + part.substr(at + name.size());
  return part;
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  if (weight == embedding_name) return {"shared.weight"};
  if (weight == "model.final_layernorm.weight") return {"decoder.final_layer_norm.weight"};
  const std::string table = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  if (weight == "model.relative_bias.weight") return {"encoder" + table};
  const auto [layer, part] = layer_name(weight);
  const Index encoder = layers_of_encoder(m);
  if (layer < 0) return {weight};
  if (layer == encoder) return {part == "relative_bias.weight" ? "decoder" + table : "encoder.final_layer_norm.weight"};
  const std::string theirs = matrix_called(part, m.mlp.gated);
  if (layer < encoder) return part_of("encoder", layer, of_encoder, theirs);
  return part_of("decoder", layer - encoder - 1, of_decoder, theirs);
}

// Copies of the embedding, and an unused bias table that early published folders contain.
bool is_ignored_tensor(const std::string& tensor) {
  return tensor == "encoder.embed_tokens.weight" || tensor == "decoder.embed_tokens.weight" ||
         tensor == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace

std::vector<Family> families() { return {{"t5", "T5ForConditionalGeneration", read, write, place, "", is_ignored_tensor}}; }

}  // namespace gyr::t5
