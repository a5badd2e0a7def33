// SPDX-License-Identifier: BSD-3-Clause
// BERT. One transformers layer is an attention layer and an MLP layer of ours. Attention is bidirectional, a LayerNorm
// follows every residual addition, all linear layers have biases, and positions and token types are learned embeddings.
// The heads are: masked language modelling, with or without sentence order; sequence classification; token
// classification.
#include <array>

#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::bert {

namespace {

void read_widths(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(30522, 768, true);
  const Index layers = r.integer("num_hidden_layers", 12, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
  m.type_vocab_size = r.integer("type_vocab_size", 2, 1, widest);
  m.norm = NormType::layer;
  m.norm_placement = NormPlacement::after;
  m.rms_norm_eps = r.not_negative("layer_norm_eps", 1e-12);
}

void read_layers(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  AttentionConfig& a = m.attention;
  r.read_multi_head_attention(12);
  a.rotary_fraction = 0;
  a.bias = true;
  a.causal = false;
  m.mlp.intermediate_size = r.size("intermediate_size", 3072);
  m.mlp.activation = r.activation("hidden_act", Activation::gelu);
  m.mlp.gated = false;
  m.mlp.bias = true;
}

void read_encoder(ConfigReader& r) {
  read_widths(r);
  read_layers(r);
  r.read_tokens(0, {}, {}, 512);
  r.config.model.positions = r.config.positions;
  r.demand(r.text("position_embedding_type", "absolute") == "absolute", "position_embedding_type",
           "is not \"absolute\"; only learned position embeddings are supported");
  for (const char* key : {"is_decoder", "add_cross_attention"}) r.demand(!r.flag(key, false), key, "is true; this is not supported");
  const double hidden = r.dropout("hidden_dropout_prob", 0.1);
  r.config.model.dropout = {hidden, hidden, r.dropout("attention_probs_dropout_prob", 0.1), hidden};
  if (!r.value("classifier_dropout").is_null()) r.config.model.dropout.head = r.dropout("classifier_dropout", 0);
  r.known("classifier_dropout"), r.known("gradient_checkpointing");
}

void read_masked(ConfigReader& r) {
  read_encoder(r);
  ModelConfig& m = r.config.model;
  r.demand(m.tie_word_embeddings, "tie_word_embeddings", "is false; a separate output matrix is not supported");
  m.objective = masked_tokens();
}

// BERT's own second objective is next-sentence prediction. Its head is trained here for sentence-order prediction.
void read_pretraining(ConfigReader& r) {
  read_masked(r);
  r.config.model.objective = masked_tokens({.sentence_order = true});
}

// Reads a classification model. tie_word_embeddings is false because there is no output matrix.
template <auto objective_of>
void read_classes(ConfigReader& r) {
  read_encoder(r);
  ModelConfig& m = r.config.model;
  const std::string problem = r.text("problem_type", "single_label_classification");
  r.demand(problem == "single_label_classification", "problem_type", "is \"{}\"; only single_label_classification is supported", shown(problem));
  const std::vector<std::string> names = r.classes();
  r.demand(names.size() > 1, "id2label", "has {} classes; at least 2 are needed: regression is not supported", names.size());
  m.tie_word_embeddings = false;
  m.objective = objective_of(names);
}

std::shared_ptr<const Objective> of_texts(const std::vector<std::string>& names) { return classify(names); }
std::shared_ptr<const Objective> of_tokens(const std::vector<std::string>& names) { return tag(names); }

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["num_attention_heads"] = m.attention.num_heads;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["max_position_embeddings"] = m.positions;
  j["type_vocab_size"] = m.type_vocab_size;
  j["layer_norm_eps"] = m.rms_norm_eps;
  j["hidden_dropout_prob"] = m.dropout.residual, j["attention_probs_dropout_prob"] = m.dropout.attention;
  j["classifier_dropout"] = m.dropout.head;
  if (!m.objective->classes().empty()) write_classes(m, j);
}

// Prefix of our weight name, and its replacement in transformers; the rest of the name is kept.
using Names = std::pair<std::string_view, std::string_view>;

constexpr std::array<Names, 10> outer{{{"model.embed_tokens", "bert.embeddings.word_embeddings"},
                                       {"model.embed_positions", "bert.embeddings.position_embeddings"},
                                       {"model.embed_types", "bert.embeddings.token_type_embeddings"},
                                       {"model.embed_layernorm", "bert.embeddings.LayerNorm"},
                                       {"lm_head.dense", "cls.predictions.transform.dense"},
                                       {"lm_head.norm", "cls.predictions.transform.LayerNorm"},
                                       {"lm_head.bias", "cls.predictions.bias"},
                                       {"lm_head.weight", "cls.predictions.decoder.weight"},
                                       {"sentence_order.", "cls.seq_relationship."},
                                       {"pooler.", "bert.pooler."}}};
constexpr std::array<Names, 5> of_attention{{{"self_attn.q_proj", "attention.self.query"},
                                             {"self_attn.k_proj", "attention.self.key"},
                                             {"self_attn.v_proj", "attention.self.value"},
                                             {"self_attn.o_proj", "attention.output.dense"},
                                             {"input_layernorm", "attention.output.LayerNorm"}}};
constexpr std::array<Names, 3> of_mlp{
    {{"feed_forward.up_proj", "intermediate.dense"}, {"feed_forward.down_proj", "output.dense"}, {"input_layernorm", "output.LayerNorm"}}};

// Replaces the prefix of a name; returns the name unchanged if no prefix matches.
std::string renamed(const std::string& name, std::span<const Names> names) {
  for (const auto& [ours, theirs] : names)
    if (name.starts_with(ours)) return std::string(theirs) + name.substr(ours.size());
  return name;
}

StoredPlace place(const ModelConfig&, const std::string& weight) {
  const auto [layer, part] = layer_name(weight);
  if (layer < 0) return {renamed(weight, outer)};
  const std::span<const Names> names = layer % 2 == 0 ? std::span<const Names>(of_attention) : std::span<const Names>(of_mlp);
  return {fmt::format("bert.encoder.layer.{}.{}", layer / 2, renamed(part, names))};
}

bool is_copy(const std::string& tensor) { return tensor == "cls.predictions.decoder.bias" || tensor.ends_with("embeddings.position_ids"); }
bool is_ignored_head_tensor(const std::string& tensor) { return tensor.starts_with("cls.seq_relationship.") || is_copy(tensor); }
bool is_head_or_pooler(const std::string& tensor) { return is_ignored_head_tensor(tensor) || tensor.starts_with("bert.pooler."); }

}  // namespace

std::vector<Family> families() {
  return {{"bert", "BertForMaskedLM", read_masked, write, place, "bert.", is_head_or_pooler},
          {"bert", "BertForPreTraining", read_pretraining, write, place, "bert.", is_copy},
          {"bert", "BertForSequenceClassification", read_classes<of_texts>, write, place, "bert.", is_ignored_head_tensor},
          {"bert", "BertForTokenClassification", read_classes<of_tokens>, write, place, "bert.", is_head_or_pooler}};
}

}  // namespace gyr::bert
