// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/added_retrieval.hpp"

#include <algorithm>
#include <charconv>

#include "modules/cost/flops.hpp"
#include "modules/model/layer.hpp"
#include "src/pretrained/drawn_weights.hpp"

namespace gyr {

namespace {

constexpr std::string_view layers_prefix = "model.layers.", encoder_prefix = "model.encoder.";

char symbol_of_retrieval() { return layer_type("retrieval").symbol; }

// Number of the layer that a weight belongs to, and the rest of its name; nullopt for weights of no layer.
std::optional<std::pair<std::size_t, std::string>> layer_of(const std::string& weight) {
  if (!weight.starts_with(layers_prefix)) return {};
  std::size_t layer = 0;
  const auto [end, error] = std::from_chars(weight.data() + layers_prefix.size(), weight.data() + weight.size(), layer);
  if (error != std::errc()) return {};
  return std::pair(layer, std::string(end, weight.data() + weight.size()));
}

// Weights of the layers R, with an o_proj of 0, and those of the neighbours' own embedding.
std::vector<Weight> weights_of_retrieval(const ModelConfig& model) {
  std::vector<Weight> added;
  for (Weight& w : declared_weights(model)) {
    const auto layer = layer_of(w.name);
    if (layer ? model.pattern.at(layer->first) != symbol_of_retrieval() : !w.name.starts_with(encoder_prefix)) continue;
    if (layer && layer->second == ".cross_attn.o_proj.weight") w.init = zeros();
    added.push_back(std::move(w));
  }
  return added;
}

// The weights of a stored model under the names that they have after layers R were put between its layers.
class RenumberedWeights final : public WeightSource {
 public:
  RenumberedWeights(std::unique_ptr<WeightSource> stored, std::string pattern) : stored_(std::move(stored)), pattern_(std::move(pattern)) {}

  std::string name() const override { return stored_->name(); }
  std::string key(const std::string& weight) const override { return stored_->key(stored_name(weight)); }
  std::vector<std::string> keys() const override { return stored_->keys(); }
  TensorReader open(const std::string& weight, DType wanted) const override { return stored_->open(stored_name(weight), wanted); }
  void check(int rank, int ranks) const override { stored_->check(rank, ranks); }

 private:
  std::string stored_name(const std::string& weight) const {
    const auto layer = layer_of(weight);
    if (!layer) return weight;
    const auto before = std::count(pattern_.begin(), pattern_.begin() + std::ptrdiff_t(layer->first), symbol_of_retrieval());
    return fmt::format("{}{}{}", layers_prefix, layer->first - std::size_t(before), layer->second);
  }

  std::unique_ptr<WeightSource> stored_;
  std::string pattern_;
};

}  // namespace

bool adds_retrieval(const ModelConfig& stored, const ModelConfig& model) { return reads_neighbours(model) && !reads_neighbours(stored); }

ModelConfig without_retrieval(const std::string& name, const ModelConfig& stored, const ModelConfig& model) {
  ModelConfig plain = model;
  std::erase(plain.pattern, symbol_of_retrieval());
  plain.encoder.reset();  // that of the neighbours
  require(plain.pattern == stored.pattern, Exit::config,
          "{}: has the layers {}, and model.pattern without its layers R is {}; write the pattern of the stored model, with R between its layers",
          name, stored.pattern, plain.pattern);
  require(
      model.norm_placement != NormPlacement::after, Exit::config,
      "{}: has a norm after every residual sum, which added layers R would repeat; train a model with R from random weights (without --init-from)",
      name);
  return plain;
}

std::unique_ptr<WeightSource> add_retrieval(std::unique_ptr<WeightSource> stored, const ModelConfig& model, std::uint64_t seed) {
  return replace_with_initialised(std::make_unique<RenumberedWeights>(std::move(stored), model.pattern), {}, weights_of_retrieval(model), seed);
}

std::string describe_added_retrieval(const ModelConfig& model) {
  const std::size_t added = weights_of_retrieval(model).size();
  return fmt::format(
      "layers R are new: {} weights are read, and {} initialised with an o_proj of 0, which leaves the function of the model as it was",
      declared_weights(model).size() - added, added);
}

}  // namespace gyr
