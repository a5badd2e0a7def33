// SPDX-License-Identifier: BSD-3-Clause
// LLaVA: a CLIP or SigLIP tower, a projector, and a text model of another family, whose settings are those of text_config and whose
// tensors have the prefix language_model. Layers of the tower after vision_feature_layer are stored and never computed.
#include "modules/model/layer.hpp"
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::llava {

namespace {

using json = ConfigReader::json;

constexpr std::pair<const char*, VisionTower> towers[] = {{"clip_vision_model", VisionTower::clip}, {"siglip_vision_model", VisionTower::siglip}};
// Model types that may follow a tower: their tensors begin with "model.", and the class of the text does not scale its embedding.
constexpr std::array texts{"llama", "mistral", "qwen2", "qwen3", "falcon_h1"};

const char* name_of(VisionTower tower) { return towers[std::size_t(tower)].first; }

// The text without its tower.
ModelConfig text_of(const ModelConfig& m) {
  ModelConfig text = m;
  text.pattern = m.pattern.substr(m.pattern.find(tower_end) + 1);
  text.vision = {};
  return text;
}

// Object of config.json that has the settings of a part.
const json& part(ConfigReader& r, const char* key) {
  const json& object = r.value(key);
  r.demand(object.is_object() && object.contains("model_type"), key, "is {}, which is not an object with a model_type", r.text_of(object));
  return object;
}

// Settings of vision_config, and the number of its layers.
Index read_tower(ConfigReader& r, VisionConfig& v) {
  const auto type = std::find_if(std::begin(towers), std::end(towers), [&](const auto& t) { return r.value("model_type") == t.first; });
  r.demand(type != std::end(towers), "model_type", "is {}; supported are {} and {}", r.text_of(r.value("model_type")), towers[0].first,
           towers[1].first);
  v = vision_defaults(type->second);
  v.hidden_size = r.size("hidden_size", 768);
  v.intermediate_size = r.size("intermediate_size", 3072);
  v.num_heads = r.size("num_attention_heads", 12);
  v.image_size = r.integer("image_size", 224, 1, 4096);
  v.patch_size = r.integer("patch_size", v.has_class_row() ? 32 : 16, 1, 4096);
  v.activation = r.activation("hidden_act", v.activation);
  v.norm_eps = r.not_negative("layer_norm_eps", v.norm_eps);
  r.integer("num_channels", image_channels, image_channels, image_channels);
  r.demand(r.dropout("attention_dropout", 0) == 0, "attention_dropout", "is {}; dropout is not supported in a tower",
           r.text_of(r.value("attention_dropout")));
  for (const char* key : {"projection_dim", "initializer_factor", "initializer_range", "vision_use_head", "dtype", "torch_dtype", "vocab_size"})
    r.known(key);
  return r.integer("num_hidden_layers", 12, 1, most_layers / 4);
}

// Number of layers that are computed, from the number of hidden states in front of or behind them.
Index computed_layers(ConfigReader& r, Index layers) {
  const char* const key = "vision_feature_layer";
  const json& layer = r.value(key);
  const Index number = layer.is_null() ? -2 : r.integer(layer, key, -1 - layers, layers), computed = number < 0 ? layers + 1 + number : number;
  r.demand(computed > 0, key, "is {}, which computes no layer of the {} of vision_config; take another one", number, layers);
  return computed;
}

void read_text(ConfigReader& r, const json& file, const std::string& origin) {
  ConfigReader text(file, origin);
  const json& type = text.value("model_type");
  const bool supported = std::any_of(texts.begin(), texts.end(), [&](const char* name) { return type == name; });
  text.demand(supported, "model_type", "is {}; supported behind a tower are {}", r.text_of(type), fmt::join(texts, ", "));
  find_family(type.get<std::string>())->read(text);
  text.read_training();
  text.note_unknown_keys();
  ModelConfig& m = text.config.model;
  if (m.embedding_multiplier != 1 || m.lm_head_multiplier != 1)
    text.note("embedding_multiplier and lm_head_multiplier are not applied, as in LlavaForConditionalGeneration of transformers 5.24");
  m.embedding_multiplier = m.lm_head_multiplier = 1;
  const bool tied = r.flag("tie_word_embeddings", m.tie_word_embeddings);
  r.demand(tied == m.tie_word_embeddings, "tie_word_embeddings", "is {}, but that of text_config is {}; write the same value", tied,
           m.tie_word_embeddings);
  HuggingFaceConfig& all = r.config;
  all.model = m, all.begin_token = text.config.begin_token, all.end_tokens = text.config.end_tokens, all.positions = text.config.positions;
  all.norm_before_gate = text.config.norm_before_gate;
  all.notes.insert(all.notes.end(), text.config.notes.begin(), text.config.notes.end());
}

void read(ConfigReader& r) {
  const std::string origin_of_text = r.origin() + ": text_config", origin_of_tower = r.origin() + ": vision_config";
  read_text(r, part(r, "text_config"), origin_of_text);
  ConfigReader tower(part(r, "vision_config"), origin_of_tower);
  ModelConfig& m = r.config.model;
  VisionConfig& v = m.vision;
  const Index layers = read_tower(tower, v), computed = computed_layers(r, layers);
  tower.note_unknown_keys();
  r.config.notes.insert(r.config.notes.end(), tower.config.notes.begin(), tower.config.notes.end());
  v.unused_layers = layers - computed;
  std::string pattern;
  for (Index i = 0; i < computed; ++i) pattern += "*-";
  m.pattern = pattern + tower_end + m.pattern;
  const std::string strategy = r.text("vision_feature_select_strategy", "default");
  r.demand(strategy == "default" || strategy == "full", "vision_feature_select_strategy", "is \"{}\"; supported are default and full", strategy);
  v.drops_first_row = strategy == "default";
  v.projector_activation = r.activation("projector_hidden_act", Activation::gelu);
  v.projector_bias = r.flag("multimodal_projector_bias", true);
  const char* const token = r.given("image_token_id") ? "image_token_id" : "image_token_index";
  v.image_token = std::int32_t(r.integer(token, 32000, 0, m.vocab_size - 1));
  r.carry("image_seq_length");
  for (const char* key : {"image_token_index", "pad_token_id", "bos_token_id", "eos_token_id", "vision_feature_layer"}) r.known(key);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  require(reads_images(m), Exit::config, "the model has no vision tower");
  const VisionConfig& v = m.vision;
  HuggingFaceConfig text = c;
  text.model = text_of(m);
  const Family& family = family_for(text.model);
  nlohmann::ordered_json& of_text = j["text_config"];
  of_text["model_type"] = family.model_type;
  family.write(text, of_text);
  write_tokens(text, of_text);
  const Index computed = layers_of_encoder(m) / 2;
  j["vision_config"] = {{"model_type", name_of(v.tower)},
                        {"hidden_size", v.hidden_size},
                        {"intermediate_size", v.intermediate_size},
                        {"num_hidden_layers", computed + v.unused_layers},
                        {"num_attention_heads", v.num_heads},
                        {"num_channels", image_channels},
                        {"image_size", v.image_size},
                        {"patch_size", v.patch_size},
                        {"hidden_act", ConfigReader::name_of(v.activation)},
                        {"layer_norm_eps", v.norm_eps},
                        {"attention_dropout", 0.0}};
  if (!v.has_class_row()) j["vision_config"]["vision_use_head"] = false;
  j["image_token_index"] = v.image_token;
  j["image_seq_length"] = v.rows_in_text();
  j["vision_feature_layer"] = -1 - v.unused_layers;
  j["vision_feature_select_strategy"] = v.drops_first_row ? "default" : "full";
  j["projector_hidden_act"] = ConfigReader::name_of(v.projector_activation);
  j["multimodal_projector_bias"] = v.projector_bias;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
}

// The name of a tensor of the tower: the first of these beginnings replaced.
std::string renamed(std::string part, std::initializer_list<std::pair<std::string_view, std::string_view>> names) {
  for (const auto& [ours, theirs] : names)
    if (part.starts_with(ours)) return std::string(theirs) + part.substr(ours.size());
  return part;
}

std::string in_layer(Index layer, const std::string& part) { return fmt::format("vision_tower.encoder.layers.{}.{}", layer, part); }

// Weights of the text have an empty name here: their family maps them (Family::text).
StoredPlace place(const ModelConfig& m, const std::string& weight) {
  const Index end = layers_of_encoder(m);
  const LayerName unused = layer_name(weight, "model.vision.unused.layers.");
  if (unused.layer >= 0)
    return {in_layer(end / 2 + unused.layer, renamed(unused.rest, {{"up_proj", "mlp.fc1"},
                                                                   {"down_proj", "mlp.fc2"},
                                                                   {"o_proj", "self_attn.out_proj"},
                                                                   {"attention_norm", "layer_norm1"},
                                                                   {"mlp_norm", "layer_norm2"},
                                                                   {"", "self_attn."}}))};
  const std::string front = "model.vision.";
  if (weight.starts_with(front))
    return {"vision_tower." + renamed(weight.substr(front.size()), {{"unused.", ""}, {"pre_layernorm", "pre_layrnorm"}, {"", "embeddings."}})};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0 || layer > end) return {};
  if (layer == end) return {"multi_modal_projector." + rest};
  return {in_layer(layer / 2, renamed(rest, {{"self_attn.o_proj", "self_attn.out_proj"},
                                             {"feed_forward.up_proj", "mlp.fc1"},
                                             {"feed_forward.down_proj", "mlp.fc2"},
                                             {"input_layernorm", layer % 2 == 0 ? "layer_norm1" : "layer_norm2"}}))};
}

// Pooling of SigLIP, which no row of the text reads, and numbers of positions that early published folders contain.
bool is_ignored_tensor(const std::string& tensor) {
  return tensor.find("vision_tower.head.") == 0 || tensor.ends_with(".position_ids") || tensor.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

std::vector<Family> families() {
  Family family{"llava", "LlavaForConditionalGeneration", read, write, place, "", is_ignored_tensor};
  family.text = text_of;
  return {family};
}

}  // namespace gyr::llava
