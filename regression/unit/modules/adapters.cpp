// SPDX-License-Identifier: BSD-3-Clause
// LoRA adapters next to frozen weights: gradients, forward results, FLOP counts and deck settings. Training changes no
// frozen weight.
#include <cmath>
#include <random>

#include "modules/cost/flops.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::adapters_suite {
namespace {

ModelConfig adapted(const std::string& pattern, Index rank = 2) {
  ModelConfig m = named("T1").model;
  m.pattern = pattern;
  m.lora.rank = rank, m.lora.alpha = 3, m.lora.targets = {"*"};
  return m;
}

EngineConfig config_of(const ModelConfig& m) {
  EngineConfig c;
  c.model = m;
  c.micro_batch_size = 2, c.seq_length = 12, c.micros = 1;
  c.optimizer.lora = m.lora;
  return c;
}
MicroBatch batch_of(const ModelConfig& m) { return micro_batch(0, 2, 12, m.vocab_size); }

double loss_of(Engine& engine, const MicroBatch& batch) {
  const auto [sum, labels] = engine.evaluate([&](int) { return batch; }, 1);
  return sum / double(labels);
}

class adapters : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(T, adapters, ::testing::Values("P", "*-", "M-", "W-"), [](const auto& info) {
  const std::string pattern = info.param;
  return pattern == "P" ? "hybrid" : pattern == "*-" ? "attention" : pattern == "M-" ? "mamba" : "window";
});

TEST_P(adapters, adapter_and_base_gradients_equal_finite_differences) {
  ModelConfig m = adapted(GetParam());
  m.lora.also = {"*"};
  Rig<double> rig(config_of(m), single_rank_grid(m.layers()));
  expect_differences_of(rig.engine, batch_of(m));
}

// Reference: a model without adapters whose weights are W + (alpha / r) B A, computed in plain loops.
TEST_P(adapters, loss_equals_model_with_merged_weights) {
  const ModelConfig m = adapted(GetParam());
  ModelConfig plain = m;
  plain.lora = {};
  Rig<double> rig(config_of(m), single_rank_grid(m.layers())), merged(config_of(plain), single_rank_grid(m.layers()));
  const auto value = [](const Parameter& p) { return p.matrix<double>(); };
  int count = 0;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    if (!p->adapter) continue;
    ++count;
    const auto a = value(*p->adapter->a), b = value(*p->adapter->b);
    for (const auto& other : merged.engine.stage().parameters().all()) {
      if (other->weight.name != p->weight.name) continue;
      const auto w = value(*other);
      for (Index i = 0; i < p->rows(); ++i)
        for (Index j = 0; j < p->columns(); ++j)
          for (Index r = 0; r < m.lora.rank; ++r) w(i, j) += m.lora.alpha / double(m.lora.rank) * b(i, r) * a(r, j);
    }
  }
  EXPECT_GE(count, 3);
  const double expected = loss_of(merged.engine, batch_of(m));
  EXPECT_NEAR(loss_of(rig.engine, batch_of(m)), expected, 1e-12 * expected);
}

TEST_P(adapters, only_adapters_are_trained_starting_from_base_model) {
  const ModelConfig m = adapted(GetParam());
  ModelConfig plain = m;
  plain.lora = {};
  Rig<double> rig(config_of(m), single_rank_grid(m.layers())), without(config_of(plain), single_rank_grid(m.layers()));
  Index trained = 0;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    EXPECT_EQ(p->trained, p->weight.of_adapter) << p->weight.name;
    if (p->trained) trained += p->size();
    if (p->weight.name.ends_with(".lora_B.weight"))
      assign(rig.engine.device(), *p, [&](Index i) { return draw(p->weight.init, Stream(1, p->weight.name), i); });
  }
  EXPECT_EQ(parameter_count(m), parameter_count(plain) + trained);
  EXPECT_LT(rig.capacity.gradients, Index(sizeof(double)) * (trained + 64 * Index(m.lora.rank) * 40));
  const double before = loss_of(rig.engine, batch_of(m));
  EXPECT_EQ(before, loss_of(without.engine, batch_of(m)));

  std::vector<double> frozen;
  const auto values = [&] {
    std::vector<double> all;
    for (const auto& p : rig.engine.stage().parameters().all())
      for (Index i = 0; !p->trained && i < p->size(); ++i) all.push_back(p->vector<double>()(i));
    return all;
  };
  const std::vector<double> kept = values();
  const MicroBatch batch = batch_of(m);
  for (Index step = 1; step <= 10; ++step) rig.engine.train([&](int) { return batch; }, 1, {.number = step, .lr = 1e-2});
  EXPECT_EQ(values(), kept);
  EXPECT_LT(loss_of(rig.engine, batch), before);
}

// training_flops, the basis of MFU, equals the GEMM FLOPs that a step executes per token, plus three forwards of
// attention, scan and convolution. Frozen weights have no weight-gradient GEMMs. GEMMs of adapters that backward
// recomputes (projection.hpp) are not counted.
TEST_P(adapters, training_flops_equal_executed_gemm_flops) {
  for (const std::vector<std::string>& also : {std::vector<std::string>{}, {"*q_proj.weight", "*in_proj.weight", "*up_proj.weight"}}) {
    ModelConfig m = adapted(GetParam(), 3), plain = m;
    m.lora.also = also, plain.lora = {};
    Rig<float> rig(config_of(m), single_rank_grid(m.layers()));
    rig.engine.device().clear_work();
    rig.engine.gradients([batch = batch_of(m)](int) { return batch; }, 1, 1);
    double gemms = 0, of_plain = 0, again = 0;
    for (const Work& w : rig.engine.device().work())
      if (std::string(w.kernel) == "gemm") gemms += w.flops;
    for (const Weight& w : declared_weights(plain))
      if (w.shape.size() == 2 && w.name != "model.embed_tokens.weight") of_plain += 2.0 * double(w.size());
    for (const Weight& w : declared_weights(m))
      if (w.of_adapter) again += 2.0 * double(w.size());
    const double rest = forward_flops(plain, 12).minimal - of_plain;  // forward FLOPs of attention, scan and convolution
    EXPECT_DOUBLE_EQ(training_flops(m, 12, config_of(m).optimizer.trained()), 3 * rest + gemms / (2 * 12) - again);
    EXPECT_GT(forward_flops(m, 12).minimal, forward_flops(plain, 12).minimal);
    EXPECT_GT(stage_costs(m, 12).layers[0], stage_costs(plain, 12).layers[0]);
  }
}

TEST(adapters, deck_settings_are_applied_or_refused) {
  std::vector<std::string> overrides;
  const auto read = [&](const std::string& lora) {
    Deck deck = Deck::parse("model: {pattern: P, hidden_size: 64}\nfinetune: {lora: " + lora + "}\n", "lora.yaml", overrides);
    const RunConfig run = read_run_config(deck);
    deck.finish();
    std::vector<std::string> names;
    for (const Weight& w : declared_weights(run.model))
      if (w.of_adapter && w.name.ends_with("lora_A.weight")) names.push_back(w.name);
    return names;
  };
  EXPECT_TRUE(read("{}").empty());
  EXPECT_EQ(read("{rank: 4}").size(), 4U);
  EXPECT_EQ(read("{rank: 4, targets: [in_proj]}").size(), 1U);
  EXPECT_EQ(read("{rank: 4, targets: [\"model.layers.0.*\"]}").size(), 9U);
  const auto refusal = [&](const std::string& lora) {
    const Error error = error_of([&] { read(lora); });
    EXPECT_EQ(error.code, Exit::config) << lora;
    return std::string(error.what());
  };
  EXPECT_NE(refusal("{rank: 4, targets: [w_proj]}").find("'w_proj' is no layer of this model that takes an adapter; those are down_proj, "),
            std::string::npos);
  EXPECT_NE(refusal("{rank: 4, targets: []}").find("is empty"), std::string::npos);
  EXPECT_NE(refusal("{rank: 65}").find("an adapter of that rank is larger"), std::string::npos);
  for (const char* key : {"alpha: 8", "targets: [q_proj]", "also: [\"*norm*\"]"}) {  // settings that have no effect without a rank
    EXPECT_NE(refusal(fmt::format("{{{}}}", key)).find("without finetune.lora.rank there are no adapters"), std::string::npos);
    EXPECT_TRUE(read(fmt::format("{{rank: 0, {}}}", key)).empty());
  }
  overrides = {"optimizer.frozen=[\"*.lora_?.weight\"]"};
  EXPECT_NE(refusal("{rank: 4}").find("leaves no weight to train"), std::string::npos);
  overrides.clear();
  EXPECT_NE(refusal("{rank: 4, also: [norms]}").find("matches no weight"), std::string::npos);
}

}  // namespace
}  // namespace gyr::testing::adapters_suite
