// SPDX-License-Identifier: BSD-3-Clause
// The full model in fp64 compared with reference values from two independent formulations, for cases T1 to T11.
#include <cmath>

#include "modules/cost/flops.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::parity_suite {
namespace {

// The references are printed to 8 or 10 digits after the point.
constexpr double printed = 6e-9;

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

EngineConfig config_of(const Case& c) {
  EngineConfig e;
  e.model = c.model;
  e.micro_batch_size = c.batch, e.seq_length = c.seq_length, e.micros = 1;
  return e;
}

class parity : public ::testing::TestWithParam<std::string> {};

TEST_P(parity, parameters_loss_and_gradients_match_references) {
  const Case& c = named(GetParam());
  EXPECT_EQ(parameter_count(c.model), c.reference.parameters);
  Rig<double> rig(config_of(c), single_rank_grid(c.model.layers()));
  const StepResult result = rig.engine.gradients([&](int) { return micro_batch(0, c.batch, c.seq_length, c.model.vocab_size); }, 1, 1);
  EXPECT_NEAR(result.loss, c.reference.loss, 1e-10 + 1e-9 * c.reference.loss);
  EXPECT_NEAR(result.gradient_norm, c.reference.gradient_norm, printed);
  const auto gradients = gathered_gradients(rig.engine);
  for (const auto& [name, expected] : c.reference.gradient_norms) EXPECT_NEAR(norm(gradients.at(name)), expected, printed) << name;
}

// Through the generation path: a full prompt at once, with KV cache and SSM state.
TEST_P(parity, logits_match_references) {
  const Case& c = named(GetParam());
  Rig<double> rig(config_of(c), single_rank_grid(c.model.layers()));
  StateStore state(Arena(Memory::activations, Index(1) << 22), c.batch, c.seq_length);
  Stage stage(c.model, DType::f64, single_rank_grid(c.model.layers()));
  stage.make_slots({{1, Index(1) << 24}}, false);
  Arena weights(Memory::weights, Index(1) << 22), none(Memory::gradients, 0);
  stage.allocate(weights, none, Gradients::none, c.seq_length);
  for (const auto& p : stage.parameters().all()) assign(rig.engine.device(), *p, WeightValues(p->weight));
  Device device(false, Index(1) << 26);
  const MicroBatch batch = micro_batch(0, c.batch, c.seq_length, c.model.vocab_size);
  stage.begin(device, {c.batch, c.seq_length, 0, {}}, batch.tokens);
  stage.forward(device, state);
  const auto logits = stage.logits(device, Stage::Rows::all).as<double>();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(logits(c.seq_length - 1, i), c.reference.logits[i], printed) << i;
  double sum = 0;
  for (Index r = 0; r < c.batch * c.seq_length; ++r)
    for (Index v = 0; v < c.model.vocab_size; ++v) sum += std::abs(logits(r, v));
  EXPECT_NEAR(sum, c.reference.logits_sum, 6e-9 * c.reference.logits_sum);
}

INSTANTIATE_TEST_SUITE_P(T, parity, ::testing::Values("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyr::testing::parity_suite
