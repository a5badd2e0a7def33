// SPDX-License-Identifier: BSD-3-Clause
#include "modules/cost/flops.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "modules/layers/embedding.hpp"
#include "modules/model/front.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/objective.hpp"

namespace gyr {

// All weights of the model, in the order in which the modules declare them.
std::vector<Weight> declared_weights(const ModelConfig& c) {
  Parameters parameters(DType::f32, Coordinates{});
  parameters.adapt(c.lora);
  Embedding embedding(c, parameters);
  const std::unique_ptr<Front> front = make_front(c, parameters, embedding);
  std::vector<std::unique_ptr<Layer>> layers;
  for (Index i = 0; i < c.layers(); ++i)
    layers.push_back(layer_type(c.pattern[i]).make(config_of_layer(c, i), fmt::format("model.layers.{}", i), parameters));
  const auto head = c.objective->head(c, shares_embedding(c) ? &embedding.table() : nullptr, parameters);
  parameters.declare_adapters();
  std::vector<Weight> weights;
  for (const auto& p : parameters.all()) weights.push_back(p->weight);
  return weights;
}

Index parameter_count(const ModelConfig& c) {
  Index count = 0;
  for (const Weight& w : declared_weights(c)) count += w.size();
  return count;
}

Index active_parameter_count(const ModelConfig& c) {
  double count = 0;
  for (const Weight& w : declared_weights(c)) count += double(w.size()) * std::min(1.0, w.tokens);
  return std::llround(count);
}

Index trained_parameter_count(const ModelConfig& c, const Trained& trained) {
  Index count = 0;
  for (const Weight& w : declared_weights(c))
    if (!trained || trained(w)) count += w.size();
  return count;
}

namespace {

// True if the layer's attention has a causal mask, so that it covers half of all keys.
bool has_causal_mask(const ModelConfig& c, Index layer) {
  return config_of_layer(c, layer).attention.causal && !layer_type(c.pattern[layer]).traits.reads_source();
}

// Flops of the layers that belong to the head (multi-token prediction).
LayerFlops head_layer_flops(const ModelConfig& c, const TextLengths& n) {
  LayerFlops sum;
  for (const char symbol : c.objective->head_layers()) sum = sum + layer_type(symbol).flops(c, n);
  return sum;
}

// Weights by the prefix of their names: "model.layers.3." for a layer, "" for the head.
std::map<std::string, std::vector<Weight>> weights_by_part(const ModelConfig& c) {
  std::map<std::string, std::vector<Weight>> parts;
  const std::string layers = "model.layers.";
  for (Weight& w : declared_weights(c)) {
    const bool of_head = !w.name.starts_with("model.");
    const auto dot = w.name.find('.', w.name.starts_with(layers) ? layers.size() : 6);
    parts[of_head ? "" : w.name.substr(0, dot + 1)].push_back(std::move(w));
  }
  return parts;
}
std::string part_of(Index layer) { return fmt::format("model.layers.{}.", layer); }

// Tokens that are multiplied with a weight, per token of the text.
double tokens_of(const Weight& w, const TextLengths& lengths, bool in_encoder) {
  return w.tokens * (in_encoder || w.of_source ? double(lengths.source) / double(lengths.text) : 1);
}

// Flops of the GEMMs with the adapters among these weights.
double adapter_flops(const std::vector<Weight>& part, const TextLengths& lengths, bool in_encoder) {
  double sum = 0;
  for (const Weight& w : part)
    if (w.of_adapter) sum += 2.0 * double(w.size()) * tokens_of(w, lengths, in_encoder);
  return sum;
}

// Adapter flops of each layer, followed by those of the head.
std::vector<double> adapter_flops(const ModelConfig& c, const TextLengths& lengths) {
  std::vector<double> flops(std::size_t(c.layers()) + 1, 0);
  if (!c.lora) return flops;
  auto parts = weights_by_part(c);
  for (Index i = 0; i < c.layers(); ++i) flops[i] = adapter_flops(parts[part_of(i)], lengths, i < layers_of_encoder(c));
  flops.back() = adapter_flops(parts[""], lengths, false);
  return flops;
}

// Flops of the encoder's front, per token of the text.
double flops_of_front(const ModelConfig& c, const TextLengths& lengths) {
  const double front = front_flops(c);
  return front > 0 ? front * double(lengths.source) / double(lengths.text) : 0;
}

double minimal(const LayerFlops& f) { return f.gemms + f.attention + f.recurrence + f.convolution; }
double executed(const LayerFlops& f) { return f.gemms + f.attention + f.scan + f.convolution; }
double megatron(const LayerFlops& f, bool half) { return f.gemms + (half ? 2 : 1) * f.attention + f.recurrence * 7 / 5; }

}  // namespace

TokenFlops forward_flops(const ModelConfig& c, const TextLengths& lengths) {
  const double head = c.objective->flops(c) + flops_of_front(c, lengths);
  const LayerFlops of_head = head_layer_flops(c, lengths);
  TokenFlops sum{head + minimal(of_head), head + executed(of_head), head + megatron(of_head, c.attention.causal)};
  for (Index i = 0; i < c.layers(); ++i) {
    const LayerFlops f = layer_flops(c, i, lengths);
    sum.minimal += minimal(f), sum.executed += executed(f), sum.megatron += megatron(f, has_causal_mask(c, i));
  }
  for (const double adapters : adapter_flops(c, lengths)) sum.minimal += adapters, sum.executed += adapters, sum.megatron += adapters;
  return sum;
}

double training_flops(const ModelConfig& c, const TextLengths& lengths, const Trained& trained) {
  auto parts = weights_by_part(c);
  const std::vector<double> adapters = adapter_flops(c, lengths);
  bool learning = false;  // true once a weight between the embedding and here is trained
  double sum = 0;
  const auto tokens = [&](const Weight& w, bool in_encoder) {
    const bool output = w.name == "lm_head.weight" || (c.tie_word_embeddings && w.name == "model.embed_tokens.weight");
    return output ? c.objective->scored() * double(1 + c.objective->depths()) : tokens_of(w, lengths, in_encoder);
  };
  const auto add = [&](const std::string& part, double forward, bool in_encoder = false) {
    double saved = 0;
    for (const Weight& w : parts[part]) {
      const bool learns = !trained || trained(w);
      learning = learning || learns;
      if (!learns && w.shape.size() == 2) saved += 2.0 * double(w.size()) * tokens(w, in_encoder);
    }
    sum += forward + (learning && forward > 0 ? (training_factor - 1) * forward - saved : 0);
  };
  const std::string table = "model.embed_tokens.";
  add(table, 0), sum += training_factor * flops_of_front(c, lengths);
  for (Index i = 0; i < c.layers(); ++i) {
    const LayerFlops f = layer_flops(c, i, lengths);
    add(part_of(i), minimal(f) + adapters[i], i < layers_of_encoder(c));
  }
  add("model.final_layernorm.", 0);
  if (c.tie_word_embeddings) parts[""].insert(parts[""].end(), parts[table].begin(), parts[table].end());
  add("", c.objective->flops(c) + minimal(head_layer_flops(c, lengths)) + adapters.back());
  return sum;
}

StageCosts stage_costs(const ModelConfig& c, const TextLengths& lengths) {
  StageCosts costs;
  const std::vector<double> adapters = adapter_flops(c, lengths);
  for (Index i = 0; i < c.layers(); ++i) {
    const LayerFlops f = layer_flops(c, i, lengths);
    costs.layers.push_back(executed(f) + adapters[i]);
  }
  costs.embedding = double(c.hidden_size) + flops_of_front(c, lengths);  // embedding lookup: one copy of hidden_size elements per token
  costs.head = c.objective->flops(c) + executed(head_layer_flops(c, lengths)) + adapters.back();
  return costs;
}

}  // namespace gyr
