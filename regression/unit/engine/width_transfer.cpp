// SPDX-License-Identifier: BSD-3-Clause
// Width transfer (muP): factors on initial values, learning rates and logits, and a coordinate check: the size of the
// activations after some steps does not depend on the width.
#include "src/engine/config/width_transfer.hpp"

#include <cmath>
#include <map>

#include "modules/cost/flops.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"
#include "src/train/engine_config.hpp"

namespace gyr::testing::width_transfer_suite {
namespace {

// A model of this width, with the depth and the head dimensions of all others.
RunConfig run_of_width(Index width, const std::string& optimizer) {
  Deck deck = Deck::parse(
      fmt::format(
          "model: {{pattern: \"*-M\", vocab_size: 32, hidden_size: {0}, tie_word_embeddings: false, attention: {{num_heads: {1}, num_kv_heads: "
          "{1}, head_dim: 16}}, mamba: {{num_heads: {2}, head_dim: 16, num_groups: 1, state_size: 8, chunk_size: 8}}, mlp: "
          "{{intermediate_size: {3}}}}}\ntrain: {{seq_length: 16, precision: fp32}}\noptimizer: {{clip_grad: 0, weight_decay: 0, {4}}}\n",
          width, width / 16, width / 8, 2 * width, optimizer),
      "deck");
  return read_run_config(deck);
}

std::unique_ptr<Rig<float>> rig_of(const RunConfig& run) {
  EngineConfig config = engine_config(run, grid_layout(1, 1, 1, {{0, run.model.layers()}}));
  config.micro_batch_size = 2, config.micros = 1;
  auto rig = std::make_unique<Rig<float>>(config, single_rank_grid(run.model.layers()));
  rig->engine.initialise(5);
  return rig;
}

// Mean magnitude of the output of each layer.
struct Magnitudes : Hook {
  std::map<std::string, double> mean;
  void micro_batch(int) override {}
  void observe(Observed what, const std::string& name, const AnyMatrix& x, Index, Index, std::span<const Held>) override {
    if (what != Observed::activation || !name.ends_with(".output")) return;
    double sum = 0;
    for (Index r = 0; r < x.rows; ++r)
      for (Index c = 0; c < x.columns; ++c) sum += std::abs(double(static_cast<const float*>(x.data)[r * x.stride + c]));
    mean[name] = sum / double(x.rows * x.columns);
  }
  void gradients_are_reduced() override {}
};

// Magnitudes after five steps.
std::map<std::string, double> coordinates(Index width, const std::string& optimizer) {
  const RunConfig run = run_of_width(width, optimizer);
  const auto rig = rig_of(run);
  const auto batch = [](int) { return micro_batch(0, 2, 16, 32); };
  for (std::int64_t step = 1; step <= 5; ++step) rig->engine.train(batch, 1, step, run.lr.lr);
  Magnitudes magnitudes;
  rig->engine.set_hook(&magnitudes);
  rig->engine.gradients(batch, 1, 6);
  rig->engine.set_hook(nullptr);
  return magnitudes.mean;
}

// Largest ratio between two widths of the magnitude of the same activation.
double spread(const std::string& optimizer) {
  std::map<std::string, std::pair<double, double>> range;
  for (const Index width : {128, 256, 512})
    for (const auto& [name, mean] : coordinates(width, optimizer)) {
      auto& [low, high] = range.try_emplace(name, mean, mean).first->second;
      low = std::min(low, mean), high = std::max(high, mean);
    }
  double most = 1;
  for (const auto& [name, pair] : range) {
    EXPECT_GT(pair.first, 0) << name;
    most = std::max(most, pair.second / pair.first);
  }
  EXPECT_GE(range.size(), 3u);
  return most;
}

}  // namespace

TEST(width_transfer, factors_follow_the_fan_in) {
  const RunConfig run = run_of_width(256, "width_base: 64");
  EXPECT_EQ(run.model.lm_head_multiplier, 0.25);
  std::map<std::string, std::pair<double, double>> factors;  // init, learning rate
  for (const Weight& w : declared_weights(run.model)) factors[w.name] = {run.optimizer.width.of_init(w), run.optimizer.group_of(w).lr_factor};
  using Pair = std::pair<double, double>;
  const std::string layers = "model.layers.";
  EXPECT_EQ(factors.at(layers + "0.self_attn.q_proj.weight"), Pair(0.5, 0.25));
  EXPECT_EQ(factors.at(layers + "0.self_attn.o_proj.weight"), Pair(0.5, 0.25));
  std::size_t hidden = 0;
  for (const auto& [name, pair] : factors) {
    const bool wide = name.ends_with("down_proj.weight") || name.ends_with("out_proj.weight");  // fan-in 512
    const bool matrix = wide || name.ends_with("_proj.weight");
    hidden += matrix;
    EXPECT_EQ(pair, matrix ? wide ? Pair(std::sqrt(0.125), 0.125) : Pair(0.5, 0.25) : Pair(1, 1)) << name;
  }
  EXPECT_EQ(hidden, 9u) << "four of attention, three of the MLP, two of Mamba";
  for (const Weight& w : declared_weights(run.model)) {
    EXPECT_EQ(run_of_width(256, "name: muon, width_base: 64").optimizer.width.of_rate(w, "muon"), 1);
    EXPECT_EQ(run_of_width(256, "").optimizer.group_of(w).lr_factor, 1);
  }
}

TEST(width_transfer, initial_values_are_those_without_it_times_factor) {
  const RunConfig with = run_of_width(64, "width_base: 16"), without = run_of_width(64, "");
  const auto scaled = rig_of(with), plain = rig_of(without);
  for (std::size_t i = 0; i < plain->engine.stage().parameters().all().size(); ++i) {
    const Parameter &a = *scaled->engine.stage().parameters().all()[i], &b = *plain->engine.stage().parameters().all()[i];
    const double factor = with.optimizer.width.of_init(a.weight);
    for (Index k = 0; k < a.size(); ++k) ASSERT_FLOAT_EQ(a.vector<float>()(k), float(factor) * b.vector<float>()(k)) << a.weight.name << " " << k;
  }
}

// With the same settings for all widths, the updates of wide layers add up to larger activations.
TEST(width_transfer, activations_do_not_depend_on_the_width) {
  for (const char* const rule : {"adamw", "lion"}) {
    const std::string optimizer = fmt::format("name: {}, lr: {}", rule, rule == std::string("adamw") ? "1e-2" : "3e-3");
    const double with = spread(optimizer + ", width_base: 128"), without = spread(optimizer);
    std::printf("%s: largest ratio of widths %.3f with width transfer, %.3f without\n", rule, with, without);
    EXPECT_LT(with, 2) << rule;
    EXPECT_GT(without, 2) << rule;
  }
}

TEST(width_transfer, other_multipliers_and_rules_are_refused) {
  const auto refusal = [](const std::string& deck_text) {
    Deck deck = Deck::parse(deck_text, "deck");
    return error_of([&] { read_run_config(deck); });
  };
  const std::string on = "\noptimizer: {width_base: 256}\n";
  EXPECT_EQ(refusal("model: {hidden_size: 1024}" + on).code, Exit::ok);
  EXPECT_EQ(refusal("model: {hidden_size: 1024, lm_head_multiplier: 0.25}" + on).code, Exit::ok) << "a model that was trained with it";
  for (const auto& [section, key] :
       {std::pair("lm_head_multiplier: 0.5", "model.lm_head_multiplier"), std::pair("embedding_multiplier: 2", "model.embedding_multiplier"),
        std::pair("mlp: {gate_multiplier: 2}", "model.mlp.gate_multiplier"),
        std::pair("attention: {key_multiplier: 2}", "model.attention.key_multiplier"),
        std::pair("mamba: {multipliers: [1, 1, 2, 1, 1]}", "model.mamba.multipliers")}) {
    const Error error = refusal(fmt::format("model: {{hidden_size: 1024, {}}}", section) + on);
    EXPECT_EQ(error.code, Exit::config) << section;
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("optimizer.width_base"), std::string::npos) << error.what();
  }
  for (const char* const rule : {"lamb", "sgd"})
    EXPECT_EQ(refusal(fmt::format("model: {{hidden_size: 1024}}\noptimizer: {{width_base: 256, name: {}}}\n", rule)).code, Exit::config) << rule;
}

}  // namespace gyr::testing::width_transfer_suite
