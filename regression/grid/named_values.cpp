// SPDX-License-Identifier: BSD-3-Clause
// Named values and the scalar head on grids of up to 8 ranks: loss and gradients equal those of one rank, whichever
// ranks hold the rows, the sequences and the output column. The entropy of the softmax, likewise, with a sharded
// vocabulary.
#include <gtest/gtest.h>

#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/weighted_values.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::named_values_suite {
namespace {

constexpr Index seq_length = 41;  // a length that is padded with context parallel
constexpr int micros_of_all = 8;

EngineConfig config_of(const std::shared_ptr<const Objective>& objective, int micros) {
  EngineConfig config;
  ModelConfig& m = config.model;
  m = named("T2").model;
  m.pattern = "*P--", m.tie_word_embeddings = false, m.vocab_size = 29;
  m.attention.num_heads = 8, m.attention.num_kv_heads = 4, m.attention.head_dim = 4, m.mamba.num_heads = 8;
  m.mlp.intermediate_size = 16;
  m.objective = objective;
  m.loss_terms.entropy = 0.4;
  config.micro_batch_size = 2, config.seq_length = seq_length, config.micros = micros, config.seed = 3;
  return config;
}

Sample sample(Index number) {
  Sample s;
  for (Index t = 0; t <= seq_length; ++t)
    s.tokens.push_back(Token((7 * t * t + 3 * number + 1) % 29)), s.learned.push_back((t + number) % 4 != 0 || t == 1);
  return s;
}

// Every row has position components of its own.
MicroBatch with_components(MicroBatch m, int components) {
  for (Index r = 0; r < m.batch * m.seq_length && components > 1; ++r)
    for (int i = 0; i < components; ++i) m.values[rotary_components].push_back(Token((r % m.seq_length) / (i + 1) + i));
  return m;
}

StepOutcome step_on(Grid& grid, const std::shared_ptr<const Objective>& objective, int components = 1) {
  const Layout& layout = grid.layout();
  const int micros = micros_of_all / layout.size(Axis::data);
  EngineConfig config = config_of(objective, micros);
  if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) config.schedule = interleaved;
  if (components > 1) config.model.attention.rotary_sections = {components, {1, 2}};
  Rig<double> rig(config, grid);
  const auto batches = [&, read = feed(sample, 5, config, grid)](int i) { return with_components(read(i), components); };
  StepOutcome outcome{rig.engine.gradients(batches, micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

// Layouts of up to 4 ranks.
std::vector<Layout> small_layouts() {
  const auto of = [](int data, int pipeline, int context, int tensor) {
    std::vector<Span> stages;
    for (int s = 0; s < pipeline; ++s) stages.push_back({4 * s / pipeline, 4 * (s + 1) / pipeline});
    return grid_layout(data, pipeline, tensor, stages, {}, {}, context);
  };
  return {of(1, 1, 1, 4), with_sequence(of(1, 2, 1, 2)), of(1, 1, 4, 1), with_sequence(of(1, 1, 2, 2)), of(2, 2, 1, 1), balanced(of(1, 1, 3, 1))};
}

void expect_equal_to_one_rank(const std::shared_ptr<const Objective>& objective, const std::vector<Layout>& layouts, int components = 1) {
  const StepOutcome one = step_on(single_rank_grid(4), objective, components);
  for (const Layout& layout : layouts) {
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    const StepOutcome many = step_on(*grid, objective, components);
    const Errors errors = errors_of(one, many);
    EXPECT_TRUE(within_limits(errors, DType::f64)) << layout.text() << ": loss " << errors.loss << ", norm " << errors.norm << ", gradient "
                                                   << errors.worst_gradient();
  }
  sync_ranks();
}

TEST(named_values, weighted_values_equal_those_of_one_rank) {
  expect_equal_to_one_rank(std::make_shared<WeightedValues>(), layouts_of_four_layers());
}

TEST(named_values, entropy_bonus_equals_that_of_one_rank) { expect_equal_to_one_rank(next_token(), layouts_of_four_layers()); }

TEST(named_values, position_components_equal_those_of_one_rank) {
  expect_equal_to_one_rank(next_token(), layouts_of_four_layers(), 2);
  expect_equal_to_one_rank(next_token(), small_layouts(), 2);
}

TEST(named_values, small_layouts_equal_one_rank) {
  expect_equal_to_one_rank(std::make_shared<WeightedValues>(), small_layouts());
  expect_equal_to_one_rank(next_token(), small_layouts());
}

}  // namespace
}  // namespace gyr::testing::named_values_suite
