// SPDX-License-Identifier: BSD-3-Clause
// Multi-token prediction (MTP) on grids of up to 8 ranks: the losses of all depths and every gradient equal those of
// one rank. The tests include packed documents, tokens without a label, all ways of sharding tokens, and all places of
// the embedding matrix, which the last stage reads again.
#include <gtest/gtest.h>

#include "modules/objectives/multi_token.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::multi_token_suite {
namespace {

constexpr Index seq_length = 21;  // a length that is padded with context parallel
constexpr int micros_of_all = 8;

std::vector<Layout> layouts() {
  std::vector<Layout> all = layouts_of_four_layers();
  Layout experts = sharded(grid_layout(2, 2, 1, {{0, 2}, {2, 4}}, {}, {}, 2), Shard::weights, 1);
  experts.expert = 4;
  all.push_back(experts);
  return all;
}

EngineConfig config_of(bool tied, int micros) {
  EngineConfig config;
  ModelConfig& m = config.model;
  m = named("T2").model;
  m.pattern = "*LE-", m.tie_word_embeddings = tied, m.vocab_size = 29;
  m.attention.num_heads = 8, m.attention.num_kv_heads = 4, m.attention.head_dim = 4, m.latent.num_heads = 8;
  m.moe.experts = 4, m.moe.intermediate_size = 8, m.moe.aux_loss = 0.5, m.moe.routing.top_k = 2;
  m.mlp.intermediate_size = 16;
  m.dropout.embedding = 0.2;
  m.objective = multi_token({2, tied ? "LE" : "*-", 0.7});
  config.micro_batch_size = 1, config.seq_length = seq_length, config.micros = micros, config.seed = 3;
  return config;
}

MicroBatch batch(Index number, Index vocab_size) {
  MicroBatch m = packed(micro_batch(number, 1, seq_length, vocab_size), {5, 9, 2, seq_length}, number);
  for (Index r = number; r < seq_length; r += 4) m.labels[r] = ignored_label;
  return with_future_tokens(m, 2);
}

StepOutcome step_on(Grid& grid, bool tied) {
  const Layout& layout = grid.layout();
  const int data = layout.size(Axis::data), micros = micros_of_all / data;
  EngineConfig config = config_of(tied, micros);
  if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) config.schedule = interleaved;
  Rig<double> rig(config, grid);
  const auto source = [&](int micro) { return batch(Index(micro) * data + grid.coordinate(Axis::data), config.model.vocab_size); };
  StepOutcome outcome{rig.engine.gradients(source, micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

TEST(multi_token, losses_and_gradients_equal_those_of_one_rank) {
  for (const bool tied : {false, true}) {
    const StepOutcome one = step_on(single_rank_grid(4), tied);
    ASSERT_EQ(one.result.ahead_losses.size(), 2u);
    for (const Layout& layout : layouts()) {
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      const StepOutcome many = step_on(*grid, tied);
      const Errors errors = errors_of(one, many);
      EXPECT_TRUE(within_limits(errors, DType::f64)) << layout.text() << (tied ? " tied" : "") << ": loss " << errors.loss << ", norm " << errors.norm
                                                     << ", gradient " << errors.worst_gradient();
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::multi_token_suite
