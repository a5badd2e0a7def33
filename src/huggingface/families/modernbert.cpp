// SPDX-License-Identifier: BSD-3-Clause
// ModernBERT. One transformers layer is an attention layer and a gated MLP layer of ours. Attention is bidirectional,
// in turns full and with a sliding window. The first norm follows the embedding. Weights of q, k and v are fused in one
// tensor, and so are gate_proj and up_proj.
#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::modernbert {

namespace {

void read_norms(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  m.norm = r.flag("norm_bias", false) ? NormType::layer : NormType::layer_no_bias;
  m.rms_norm_eps = r.not_negative("norm_eps", 1e-5);
  m.embed_norm = true;
}

void read_attention(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  AttentionConfig& a = m.attention;
  r.read_multi_head_attention(12);
  a.bias = r.flag("attention_bias", false);
  a.causal = false;
  const Index every = r.integer("global_attn_every_n_layers", 3, 1, most_layers);
  read_layer_types(r, true, [&](Index i) { return i % every != 0; });
  // local_attention counts both sides; size counts one side and the token itself
  m.window.size = r.integer("local_attention", 128, 1, longest) / 2 + 1;
  m.window.rope_theta = r.value("local_rope_theta").is_null() ? 1e4 : r.positive("local_rope_theta", 1e4);
  for (const char* key : {"sliding_window", "rope_theta"})
    r.demand(r.value(key).is_null(), key, "is {}; use local_attention, global_rope_theta and local_rope_theta instead", r.text_of(r.value(key)));
  const ConfigReader::json& scaling = r.value("rope_scaling");
  r.demand(!scaling.is_object() || !scaling.contains("rope_theta"), "rope_scaling", "is {}; use global_rope_theta and local_rope_theta instead",
           r.text_of(scaling));
  r.read_rotary(r.positive("global_rope_theta", 160000), {.by_kind = true});
}

void read_mlp(ConfigReader& r) {
  MlpConfig& c = r.config.model.mlp;
  c.intermediate_size = r.size("intermediate_size", 1152);
  c.activation = r.activation("hidden_activation", Activation::gelu);
  c.bias = r.flag("mlp_bias", false);
}

// True if the dense layer before the output matrix has a bias.
bool read_transform(ConfigReader& r) {
  r.demand(r.activation("classifier_activation", Activation::gelu) == r.config.model.mlp.activation, "classifier_activation",
           "differs from hidden_activation; this is not supported");
  return r.flag("classifier_bias", false);
}

void read_encoder(ConfigReader& r) {
  r.read_widths(50368, 768, true);
  const Index layers = r.integer("num_hidden_layers", 22, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) r.config.model.pattern += "*-";
  read_norms(r);
  read_attention(r);
  read_mlp(r);
  r.read_tokens(50283, 50281, 50282, 8192);
  DropoutConfig& d = r.config.model.dropout;
  d.embedding = r.dropout("embedding_dropout", 0), d.attention = r.dropout("attention_dropout", 0), d.head = r.dropout("classifier_dropout", 0);
  if (r.not_negative("mlp_dropout", 0) > 0) r.note("mlp_dropout is {}; it is not applied in training", r.text_of(r.value("mlp_dropout")));
  for (const char* key : {"cls_token_id", "deterministic_flash_attn", "initializer_cutoff_factor", "reference_compile", "repad_logits_with_grad",
                          "sep_token_id", "sparse_prediction", "sparse_pred_ignore_index"})
    r.carry(key);
  for (const char* key : {"classifier_pooling", "decoder_bias", "gradient_checkpointing", "layer_norm_eps", "position_embedding_type"}) r.known(key);
}

void read_masked(ConfigReader& r) {
  read_encoder(r);
  ModelConfig& m = r.config.model;
  r.demand(m.tie_word_embeddings, "tie_word_embeddings", "is false; a separate output matrix is not supported");
  r.demand(r.flag("decoder_bias", true), "decoder_bias", "is false; an output matrix without a bias is not supported");
  m.objective = masked_tokens({.head_bias = read_transform(r)});
}

// Reads a classification model. tie_word_embeddings is false because there is no output matrix.
template <auto objective_of>
void read_classes(ConfigReader& r) {
  read_encoder(r);
  const std::string problem = r.text("problem_type", "single_label_classification");
  r.demand(problem == "single_label_classification", "problem_type", "is \"{}\"; only single_label_classification is supported", shown(problem));
  const std::vector<std::string> names = r.classes();
  r.demand(names.size() > 1, "id2label", "has {} classes; at least 2 are needed: regression is not supported", names.size());
  r.config.model.tie_word_embeddings = false;
  r.config.model.objective = objective_of(r, names, read_transform(r) ? ClassFront::transform : ClassFront::transform_no_bias);
}

std::shared_ptr<const Objective> of_texts(ConfigReader& r, const std::vector<std::string>& names, ClassFront front) {
  const std::string pooling = r.text("classifier_pooling", "cls");
  r.demand(pooling == "cls" || pooling == "mean", "classifier_pooling", "is \"{}\"; it must be cls or mean", shown(pooling));
  return classify(names, pooling == "mean" ? Pool::mean : Pool::first, front);
}
std::shared_ptr<const Objective> of_tokens(ConfigReader&, const std::vector<std::string>& names, ClassFront front) { return tag(names, front); }

// Period n of the full-attention layers, if exactly the layers 0, n, 2n, ... have full attention; otherwise 0.
Index period_of(const ModelConfig& m) {
  const Index layers = m.layers() / 2;
  for (Index n = 1; n <= layers; ++n) {
    bool fits = true;
    for (Index i = 0; i < layers; ++i) fits = fits && (m.pattern[2 * i] == 'W') == (i % n != 0);
    if (fits) return n;
  }
  return 0;
}

// Writes layer types and their rope_theta in the formats of transformers before and since version 5.
void write_kinds(const ModelConfig& m, nlohmann::ordered_json& j) {
  const double local = m.window.rope_theta > 0 ? m.window.rope_theta : m.attention.rope_theta;
  write_layer_types(m, j);
  if (const Index period = period_of(m)) j["global_attn_every_n_layers"] = period;
  j["local_attention"] = std::max<Index>(1, 2 * (m.window.size - 1));
  j["global_rope_theta"] = m.attention.rope_theta, j["local_rope_theta"] = local;
  j["rope_parameters"] = {{full_kind, {{"rope_type", "default"}, {"rope_theta", m.attention.rope_theta}}},
                          {window_kind, {{"rope_type", "default"}, {"rope_theta", local}}}};
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["num_attention_heads"] = m.attention.num_heads;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_activation"] = j["classifier_activation"] = ConfigReader::name_of(m.mlp.activation);
  j["attention_bias"] = m.attention.bias, j["mlp_bias"] = m.mlp.bias;
  j["norm_bias"] = m.norm == NormType::layer, j["norm_eps"] = m.rms_norm_eps;
  j["decoder_bias"] = true;
  const bool classes = !m.objective->classes().empty();
  const Masking* const masking = masking_of(*m.objective);
  j["classifier_bias"] = classes ? front_of(*m.objective) == ClassFront::transform : masking && masking->head_bias;
  j["classifier_pooling"] = pool_of(*m.objective) == Pool::mean ? "mean" : "cls";
  if (classes) write_classes(m, j);
  j["attention_dropout"] = m.dropout.attention, j["embedding_dropout"] = m.dropout.embedding, j["mlp_dropout"] = 0.0;
  j["classifier_dropout"] = m.dropout.head;
  j["max_position_embeddings"] = c.positions;
  write_kinds(m, j);
}

// Place of a weight that is one of `parts` equal parts of a fused tensor, each with `rows` rows.
StoredPlace stacked(const std::string& name, Index part, Index parts, Index rows) {
  return {name, false, {part * rows, (part + 1) * rows}, parts * rows};
}

StoredPlace part_of_layer(const ModelConfig& m, Index layer, const std::string& part) {
  const std::string block = fmt::format("model.layers.{}.", layer / 2), kind = part.substr(part.rfind('.'));
  const std::string name = part.substr(0, part.size() - kind.size());
  const Index heads = m.attention.num_heads * m.attention.head_dim, inner = m.mlp.intermediate_size;
  if (name == "input_layernorm") return {block + (layer % 2 == 0 ? "attn_norm" : "mlp_norm") + kind};
  if (name == "self_attn.q_proj") return stacked(block + "attn.Wqkv" + kind, 0, 3, heads);
  if (name == "self_attn.k_proj") return stacked(block + "attn.Wqkv" + kind, 1, 3, heads);
  if (name == "self_attn.v_proj") return stacked(block + "attn.Wqkv" + kind, 2, 3, heads);
  if (name == "self_attn.o_proj") return {block + "attn.Wo" + kind};
  if (name == "feed_forward.gate_proj") return stacked(block + "mlp.Wi" + kind, 0, 2, inner);
  if (name == "feed_forward.up_proj") return stacked(block + "mlp.Wi" + kind, 1, 2, inner);
  return {block + "mlp.Wo" + kind};
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  const auto [layer, part] = layer_name(weight);
  if (layer >= 0) return part_of_layer(m, layer, part);
  const std::pair<std::string_view, const char*> names[] = {{"model.embed_tokens", "model.embeddings.tok_embeddings"},
                                                            {"model.embed_layernorm", "model.embeddings.norm"},
                                                            {"model.final_layernorm", "model.final_norm"},
                                                            {"lm_head.dense", "head.dense"},
                                                            {"lm_head.norm", "head.norm"},
                                                            {"classifier.dense", "head.dense"},
                                                            {"classifier.norm", "head.norm"},
                                                            {"lm_head", "decoder"}};
  for (const auto& [ours, theirs] : names)
    if (weight.starts_with(ours)) return {theirs + weight.substr(ours.size())};
  return {weight};
}

}  // namespace

std::vector<Family> families() {
  return {{"modernbert", "ModernBertForMaskedLM", read_masked, write, place},
          {"modernbert", "ModernBertForSequenceClassification", read_classes<of_texts>, write, place},
          {"modernbert", "ModernBertForTokenClassification", read_classes<of_tokens>, write, place}};
}

}  // namespace gyr::modernbert
