// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/layer.hpp"

#include <algorithm>
#include <map>

namespace gyr {

namespace {
// Filled during static initialisation, constant afterwards.
std::vector<LayerType>& table() {
  static std::vector<LayerType> types;
  return types;
}
}  // namespace

Registered::Registered(LayerType type) {
  auto& types = table();
  types.insert(std::find_if(types.begin(), types.end(), [&](const LayerType& t) { return t.symbol > type.symbol; }), type);
}

const std::vector<LayerType>& layer_types() { return table(); }

const LayerType& layer_type(char symbol) {
  for (const LayerType& type : layer_types())
    if (type.symbol == symbol) return type;
  std::string known;
  for (const LayerType& type : layer_types()) known += fmt::format("{}'{}' ({})", known.empty() ? "" : ", ", type.symbol, type.name);
  const bool repeats = symbol == 'x' || symbol == ' ' || (symbol >= '0' && symbol <= '9');
  const char* const remedy = repeats ? "; repeated layers are written SYMBOLS x COUNT with spaces around the x, as in P x 2" : "";
  fail(Exit::config, "model.pattern: there is no layer type '{}'{}; the types are {}", symbol, remedy, known);
}

const LayerType& layer_type(std::string_view name) {
  const auto found = std::find_if(table().begin(), table().end(), [&](const LayerType& type) { return type.name == name; });
  ensure(found != table().end(), "there is no layer type named {}", name);
  return *found;
}

std::vector<LayerSection> layer_sections() {
  std::map<std::string, LayerSection> by_name;
  for (const LayerType& type : layer_types())
    for (const LayerSection& section : type.sections) by_name.emplace(section.name, section);
  std::vector<LayerSection> sections;
  for (const auto& [name, section] : by_name) sections.push_back(section);
  return sections;
}

LayerFlops operator+(const LayerFlops& a, const LayerFlops& b) {
  return {a.gemms + b.gemms, a.attention + b.attention, a.recurrence + b.recurrence, a.scan + b.scan, a.convolution + b.convolution};
}

LayerFlops operator*(double n, const LayerFlops& a) { return {n * a.gemms, n * a.attention, n * a.recurrence, n * a.scan, n * a.convolution}; }

namespace {

// Two searches for one symbol: patterns of thousands of layers are searched for every layer.
std::size_t end_of_encoder(const ModelConfig& c) { return std::min(c.pattern.find(encoder_end), c.pattern.find(tower_end)); }

// The configuration of a vision tower: LayerNorms with biases before the branches, biases everywhere, and no rotary positions.
ModelConfig tower_config(const ModelConfig& c) {
  const VisionConfig& v = c.vision;
  ModelConfig t;
  t.pattern = c.pattern, t.vision = v, t.init_std = c.init_std, t.lora = c.lora, t.vocab_size = c.vocab_size;
  t.hidden_size = v.hidden_size, t.norm = NormType::layer, t.rms_norm_eps = v.norm_eps;
  t.attention.num_heads = t.attention.num_kv_heads = v.num_heads, t.attention.head_dim = v.hidden_size / v.num_heads;
  t.attention.rotary_fraction = 0, t.attention.bias = true, t.attention.causal = false;
  t.mlp.intermediate_size = v.intermediate_size, t.mlp.activation = v.activation, t.mlp.gated = false, t.mlp.bias = true;
  return t;
}

}  // namespace

bool has_encoder(const ModelConfig& c) { return end_of_encoder(c) != std::string::npos; }

bool reads_images(const ModelConfig& c) { return c.pattern.find(tower_end) != std::string::npos; }

Index layers_of_encoder(const ModelConfig& c) {
  const std::size_t end = end_of_encoder(c);
  return end == std::string::npos ? 0 : Index(end);
}

ModelConfig encoder_config(const ModelConfig& c) {
  if (reads_images(c)) return tower_config(c);
  ModelConfig e = c;
  if (const auto& own = c.encoder)
    e.hidden_size = own->hidden_size, e.norm = own->norm, e.rms_norm_eps = own->rms_norm_eps, e.attention = own->attention, e.mlp = own->mlp;
  e.attention.causal = false;
  e.encoder.reset();
  return e;
}

std::vector<Stack> stacks_of(const ModelConfig& c) {
  const Index border = layers_of_encoder(c);
  std::vector<Stack> stacks;
  if (border > 0) stacks.push_back({{0, border}, encoder_config(c)});
  stacks.push_back({{border, c.layers()}, c});
  return stacks;
}

ModelConfig config_of_layer(const ModelConfig& c, Index layer) { return layer < layers_of_encoder(c) ? encoder_config(c) : c; }

Span retrieval_layers(const ModelConfig& c) {
  for (const LayerType& type : layer_types()) {  // few types; a pattern may be long
    if (type.traits.attention != AttentionKind::neighbours) continue;
    if (const std::size_t first = c.pattern.find(type.symbol); first != std::string::npos)
      return {Index(first), Index(c.pattern.rfind(type.symbol)) + 1};
  }
  return {0, 0};
}

bool is_larger_first(const ModelConfig& c, Index layer) {
  const char symbol = c.pattern[std::size_t(layer)];
  return layer_type(symbol).traits.flops_of_first && c.pattern.find(symbol) == std::size_t(layer);
}

LayerFlops layer_flops(const ModelConfig& c, Index layer, const TextLengths& n) {
  const LayerType& type = layer_type(c.pattern[layer]);
  if (is_larger_first(c, layer)) return type.flops(c, n) + type.traits.flops_of_first(c, n);
  if (layer >= layers_of_encoder(c)) return type.flops(c, n);
  const Index length = reads_images(c) ? c.vision.rows() : n.source;  // each image is a sequence of its own
  return double(n.source) / double(n.text) * type.flops(config_of_layer(c, layer), length);
}

}  // namespace gyr
