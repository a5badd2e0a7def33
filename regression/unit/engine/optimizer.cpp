// SPDX-License-Identifier: BSD-3-Clause
// The optimizer: which weights decay, which parameter group applies, and that clipping scales all gradients by one
// factor.
#include "src/engine/step/optimizer.hpp"

#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::optimizer_suite {
namespace {

constexpr Index seq_length = 11;

// Parallel, Mamba-2, attention and MLP layers with all biases and a gated norm, so that all their kinds of weights
// occur.
ModelConfig everything() {
  ModelConfig m = named("T2").model;
  m.pattern = "PM*-";
  m.attention.bias = m.mlp.bias = m.mamba.in_bias = m.mamba.out_bias = true;
  return m;
}

EngineConfig config_of(const ModelConfig& model, const OptimizerConfig& optimizer = {}, int micros = 1) {
  EngineConfig c;
  c.model = model;
  c.micro_batch_size = 2, c.seq_length = seq_length, c.micros = micros;
  c.optimizer = optimizer;
  return c;
}

std::vector<double> values(const Tensor1<double>& x) { return {x.data(), x.data() + x.extent(0)}; }

// The factor by which one step with zero gradients scales each weight, by name.
std::map<std::string, double> factors(const ModelConfig& model, const OptimizerConfig& optimizer, double lr) {
  Rig<double> rig(config_of(model, optimizer), single_rank_grid(model.layers()));
  auto& engine = rig.engine;
  const auto& all = engine.stage().parameters().all();
  for (const auto& p : all) assign(engine.device(), *p, [](Index i) { return 1 + 0.01 * double(i % 7); });
  engine.optimizer().reset(engine.device());
  const auto gradients = engine.stage().parameters().gradients().as<double>();
  std::fill_n(gradients.data(), gradients.extent(0), 0.0);
  engine.optimizer().step(engine.device(), {lr, optimizer.weight_decay, 1, 1});
  std::map<std::string, double> factors;
  for (const auto& p : all) {
    const auto w = p->vector<double>();
    factors[p->weight.name] = w(0);
    for (Index i = 0; i < p->size(); ++i) EXPECT_NEAR(w(i) / (1 + 0.01 * double(i % 7)), w(0), 1e-14) << p->weight.name;
  }
  return factors;
}

// By name only: matrices and embeddings decay, convolution weights only if the deck enables it, vectors never.
bool should_decay(const std::string& name, bool convolution) {
  if (name.ends_with("conv1d.weight")) return convolution;
  for (const char* matrix : {"_proj.weight", "embed_tokens.weight", "lm_head.weight"})
    if (name.ends_with(matrix)) return true;
  for (const char* vector : {".bias", "norm.weight", "layernorm.weight", ".A_log", ".D", ".dt_bias"})
    if (name.ends_with(vector)) return false;
  ADD_FAILURE() << name << ": add this weight to should_decay";
  return false;
}

TEST(optimizer, weight_decay_applies_to_matrices_and_embeddings_only) {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.25;
  for (const bool tied : {false, true})
    for (const bool convolution : {false, true}) {
      ModelConfig model = everything();
      model.tie_word_embeddings = tied, model.mamba.decay_conv = convolution;
      int decaying = 0;
      for (const auto& [name, factor] : factors(model, optimizer, 0.5)) {
        const bool decays = should_decay(name, convolution);
        decaying += decays;
        EXPECT_NEAR(factor, decays ? 1 - 0.5 * 0.25 : 1.0, 1e-14) << name;
        EXPECT_TRUE(decays || factor == 1) << name << " must keep its bits";
      }
      EXPECT_GT(decaying, 10);
    }
}

TEST(optimizer, last_matching_parameter_group_wins) {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.1;
  optimizer.groups = {{"*", 0.5, 2}, {"model.layers.0.*", 3, 0.5}, {"*.in_proj.weight", 1, 4}, {"model.layers.1.*", 7, 1}};
  const auto of = factors(everything(), optimizer, 0.1);
  const auto expect = [&](const char* name, double lr, double weight_decay) {
    EXPECT_NEAR(of.at(name), 1 - 0.1 * lr * 0.1 * weight_decay, 1e-14) << name;
  };
  expect("lm_head.weight", 0.5, 2);
  expect("model.layers.0.self_attn.q_proj.weight", 3, 0.5);  // the last matching group replaces earlier factors; they do not multiply
  expect("model.layers.0.mamba.in_proj.weight", 1, 4);
  expect("model.layers.1.mamba.in_proj.weight", 7, 1);  // the last matching group, although the pattern of an earlier one is more specific
  EXPECT_EQ(of.at("model.layers.1.mamba.A_log"), 1.0) << "a decay factor has no effect on a weight without decay";
}

// With a constant gradient g, the bias-corrected Adam moments are g and g^2. From the first step on, every weight moves
// by the learning rate.
TEST(optimizer, constant_gradient_moves_weights_by_learning_rate) {
  const ModelConfig model = everything();
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0, optimizer.rule = adamw({0.9, 0.95, 1e-30});
  Rig<double> rig(config_of(model, optimizer), single_rank_grid(model.layers()));
  auto& engine = rig.engine;
  const auto& all = engine.stage().parameters().all();
  for (const auto& p : all) assign(engine.device(), *p, [](Index) { return 1.0; });
  engine.optimizer().reset(engine.device());
  const auto gradients = engine.stage().parameters().gradients().as<double>();
  std::fill_n(gradients.data(), gradients.extent(0), -0.25);
  for (int step = 1; step <= 3; ++step) {
    engine.optimizer().step(engine.device(), {0.125, 0, 1, double(step)});
    for (const auto& p : all) EXPECT_NEAR(p->vector<double>()(0), 1 + 0.125 * step, 1e-13) << p->weight.name << " in step " << step;
  }
}

// The moments after one step show which gradients the update used: those of the step, all scaled by one factor so that
// the norm equals the limit.
TEST(optimizer, gradient_clipping_is_applied_once) {
  const ModelConfig model = everything();
  constexpr int micros = 2;
  const MicroBatches source = [&](int micro) { return micro_batch(2 * micro, 2, seq_length, model.vocab_size); };
  const auto run = [&](double clip_grad, auto&& look) {
    OptimizerConfig optimizer;
    optimizer.clip_grad = clip_grad;
    Rig<double> rig(config_of(model, optimizer, micros), single_rank_grid(model.layers()));
    const StepResult result = rig.engine.train(source, micros, {1, 0.01});
    look(rig.engine, result);
    return result.gradient_norm;
  };
  const double norm = run(0, [](auto&&...) {});
  for (const double clip_grad : {0.0, 0.25 * norm, 0.999 * norm, 1.001 * norm, 40 * norm})
    run(clip_grad, [&](Engine& engine, const StepResult& result) {
      EXPECT_NEAR(result.gradient_norm, norm, 1e-12 * norm) << "the reported gradient norm is the one before clipping";
      const double factor = clip_grad > 0 && clip_grad < norm ? clip_grad / norm : 1;
      double squares = 0;
      for (const auto& p : engine.stage().parameters().all()) {
        const auto g = values(p->vector_gradient<double>()), m = values(engine.optimizer().state(*p, "first_moment").values.as<double>()),
                   v = values(engine.optimizer().state(*p, "second_moment").values.as<double>());
        double worst = 0, largest = 1e-300;
        for (std::size_t i = 0; i < g.size(); ++i) {
          const double seen = factor * g[i];
          worst = std::max({worst, std::abs(m[i] / 0.1 - seen), std::abs(std::sqrt(v[i] / 0.05) - std::abs(seen))});
          largest = std::max(largest, std::abs(seen));
          squares += m[i] / 0.1 * m[i] / 0.1;
        }
        EXPECT_LE(worst, 1e-12 * largest) << p->weight.name << " clipped at " << clip_grad;
      }
      EXPECT_NEAR(std::sqrt(squares), factor * norm, 1e-12 * norm) << "clipped at " << clip_grad;
    });
}

}  // namespace
}  // namespace gyr::testing::optimizer_suite
