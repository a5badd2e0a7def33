// SPDX-License-Identifier: BSD-3-Clause
// Limits are computed in double, which does not overflow here.
#include "src/config/bounds.hpp"

#include <map>

#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/base/limits.hpp"
#include "src/config/run_config.hpp"

namespace gyr {

namespace {

constexpr double most_weights = 0x1p48, most_elements = 0x1p48, most_rows = 0x1p30, most_samples_tokens = 0x1p62;

void at_most(double made, double most, const char* what, const std::string& settings_text) {
  require(made <= most, Exit::config, "{}: together that is {:.3g} {}; the maximum is {:.3g}", settings_text, made, what, most);
}

struct ModelSize {
  double weights = 0, channels = 0;  // number of elements of all weights; number of activation elements per token
};

// Evaluates one layer of each type, in the encoder and after it, and multiplies by the number of its layers.
ModelSize size_of(const ModelConfig& model) {
  std::map<std::pair<bool, char>, double> of_type;  // key: in the decoder or not, symbol
  for (Index i = 0; i < model.layers(); ++i) of_type[{i >= layers_of_encoder(model), model.pattern[i]}] += 1;
  ModelConfig one = model;
  one.pattern.clear();
  std::vector<double> layers;
  const auto take = [&](const auto& type) { one.pattern += type.first.second, layers.push_back(type.second); };
  auto border = of_type.find({true, encoder_end});  // goes in front of the decoder's other layers
  if (border == of_type.end()) border = of_type.find({true, tower_end});
  for (auto type = of_type.begin(); type != of_type.end(); ++type) {
    if (border != of_type.end() && type == of_type.lower_bound({true, 0})) take(*border);
    if (type != border) take(*type);
  }
  ModelSize size;
  for (const Weight& w : declared_weights(one)) {
    double times = 1, elements = 1;
    for (std::size_t i = 0; i < one.pattern.size(); ++i)
      if (w.name.starts_with(fmt::format("model.layers.{}.", i))) times = layers[i];
    for (const Index extent : w.shape) elements *= double(extent);
    size.weights += times * elements;
    size.channels += times * double(w.shape[0]) * w.tokens;
  }
  return size;
}

}  // namespace

void check_bounds(const ModelConfig& m, const Section& model) {
  const auto product = [&](Index a, Index b, const char* key_a, const char* key_b) {
    at_most(double(a) * double(b), double(widest), "channels", model.settings_text({key_a, key_b}));
  };
  product(m.attention.num_heads, m.attention.head_dim, "attention.num_heads", "attention.head_dim");
  if (m.encoder) product(m.encoder->attention.num_heads, m.encoder->attention.head_dim, "encoder.attention.num_heads", "encoder.attention.head_dim");
  product(m.latent.num_heads, m.latent.qk_head_dim(), "latent.num_heads", "latent.head_dim");
  product(m.latent.num_heads, m.latent.v_head_dim, "latent.num_heads", "latent.v_head_dim");
  product(m.mamba.num_heads, m.mamba.head_dim, "mamba.num_heads", "mamba.head_dim");
  product(m.delta.num_heads, m.delta.head_dim, "delta.num_heads", "delta.head_dim");
  product(m.delta.num_heads, m.delta.key_dim, "delta.num_heads", "delta.key_dim");
  product(m.mamba.num_groups, m.mamba.state_size, "mamba.num_groups", "mamba.state_size");
  at_most(size_of(m).weights, most_weights, "weights",
          model.settings_text({"pattern", "vocab_size", "hidden_size", "attention.num_heads", "attention.head_dim", "mamba.num_heads",
                               "mamba.head_dim", "mamba.state_size", "mlp.intermediate_size", "moe.experts", "moe.intermediate_size"}));
}

void check_bounds(const RunConfig& run, const Deck& deck) {
  check_bounds(run, SettingsText([&](const std::vector<std::string>& keys) { return deck.settings_text(keys); }));
}

void check_bounds(const RunConfig& run, const SettingsText& settings_text) {
  const TrainConfig& t = run.train;
  const ModelConfig& m = run.model;
  const double rows = double(t.micro_batch_size) * double(t.seq_length), chunks = rows / double(std::min(m.mamba.chunk_size, t.seq_length)) + 1;
  const Index at_once = t.micro_batch_size * std::max(1, run.parallel.data);
  for (const BatchStep& step : t.batches())
    require(step.batch % at_once == 0, Exit::config,
            "{}: {} sequences do not split into micro-batches of {}{}; take a multiple of {} as train.global_batch_size and in train.ramp",
            settings_text({"train.global_batch_size", "train.ramp", "train.micro_batch_size", "parallel.data"}), step.batch, t.micro_batch_size,
            run.parallel.data > 0 ? fmt::format(" on {} data ranks", run.parallel.data) : "", at_once);
  require(m.positions == 0 || t.seq_length <= m.positions, Exit::config,
          "{}: sequences of {} tokens, but the model has {} learned positions; take shorter sequences, or more positions",
          settings_text({"train.seq_length", "model.positions"}), t.seq_length, m.positions);
  at_most(rows, most_rows, "tokens in a micro-batch", settings_text({"train.micro_batch_size", "train.seq_length"}));
  at_most(rows * size_of(m).channels, most_elements, "activation elements of a micro-batch",
          settings_text({"train.micro_batch_size", "train.seq_length", "model.pattern", "model.vocab_size", "model.hidden_size",
                         "model.mlp.intermediate_size", "model.moe.intermediate_size"}));
  if (has_layer(all_layers(m), &LayerTraits::ssm))
    at_most(chunks * double(m.mamba.inner()) * double(m.mamba.state_size), most_elements, "elements of scan states",
            settings_text({"train.micro_batch_size", "train.seq_length", "model.mamba.chunk_size", "model.mamba.num_heads", "model.mamba.head_dim",
                           "model.mamba.state_size"}));
  at_most(double(t.steps) * double(run.largest_batch()) * double(t.seq_length), most_samples_tokens, "tokens of a run",
          settings_text({"train.steps", "train.global_batch_size", "train.ramp", "train.seq_length"}));
  at_most(double(run.parallel.pipeline) * run.parallel.context * run.parallel.tensor, double(most_model_ranks), "ranks of one model",
          settings_text({"parallel.pipeline", "parallel.context", "parallel.tensor"}));
  at_most(double(std::max(1, run.parallel.data)) * run.parallel.pipeline * run.parallel.context * run.parallel.tensor, double(most_ranks), "ranks",
          settings_text({"parallel.data", "parallel.pipeline", "parallel.context", "parallel.tensor"}));
}

}  // namespace gyr
