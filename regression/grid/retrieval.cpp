// SPDX-License-Identifier: BSD-3-Clause
// Layers R on grids of up to 8 ranks: loss and every gradient equal those of one rank, and memory, traffic and FLOPs of a
// step equal its plan.
#include <gtest/gtest.h>

#include "regression/support/closed_form.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/retrieval.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::retrieval_suite {
namespace {

constexpr int micros_of_all = 8;  // micro-batches of a step on all data-parallel ranks

Layout four_layers(int data, int pipeline, int tensor, int chunks = 1) {
  std::vector<Span> stages;
  for (int s = 0, n = pipeline * chunks; s < n; ++s) stages.push_back({4 * s / n, 4 * (s + 1) / n});
  return grid_layout(data, pipeline, tensor, stages);
}

std::vector<Layout> layouts() {
  std::vector<Layout> all{four_layers(8, 1, 1), four_layers(1, 1, 8), four_layers(2, 4, 1),    four_layers(1, 2, 4),
                          four_layers(2, 1, 4), four_layers(2, 2, 2), four_layers(1, 2, 1, 2), four_layers(2, 2, 2, 2)};
  for (const Layout& layout : {four_layers(1, 1, 8), four_layers(1, 2, 4), four_layers(2, 1, 4), four_layers(2, 2, 2, 2)})
    all.push_back(with_sequence(layout));
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    all.push_back(sharded(four_layers(4, 2, 1), shard, 1));
    all.push_back(with_sequence(sharded(four_layers(4, 1, 2), shard)));
  }
  return all;
}

// Context parallelism with blocks of contiguous tokens: two per rank in zigzag order, otherwise one.
Layout with_context(Layout layout, int context, ContextMode mode = ContextMode::ring, SequenceOrder order = SequenceOrder::zigzag) {
  Layout shared = grid_layout(layout.size(Axis::data), layout.size(Axis::pipeline), layout.size(Axis::tensor), layout.stages, {}, {}, context);
  shared.sequence = layout.sequence, shared.shard = layout.shard, shared.bucket_bytes = layout.bucket_bytes;
  shared.context_mode = mode, shared.order = order;
  return shared;
}

std::vector<Layout> layouts_with_context() {
  const auto contiguous = [](const Layout& layout, int ranks, ContextMode mode) {
    return with_context(layout, ranks, mode, SequenceOrder::contiguous);
  };
  return {with_context(four_layers(1, 1, 1), 4),
          with_context(four_layers(1, 2, 2), 2),
          with_context(with_sequence(four_layers(1, 1, 2)), 4),
          with_context(four_layers(1, 2, 1, 2), 2),
          with_context(sharded(four_layers(2, 1, 2), Shard::weights, 1), 2),
          with_context(four_layers(1, 1, 8), 1),
          contiguous(four_layers(2, 1, 1), 4, ContextMode::balanced),
          contiguous(four_layers(1, 4, 1), 2, ContextMode::balanced),
          contiguous(with_sequence(four_layers(1, 2, 2)), 2, ContextMode::heads),
          contiguous(four_layers(1, 2, 1), 4, ContextMode::ring)};
}

struct Variant {
  const char *pattern, *encoder;
  double dropout = 0;  // of the encoder
  bool recomputed = false, zero_bubble = false, tied = false;
  Index chunks = 3, batch = 1;  // chunks of a sequence, and sequences of a micro-batch
  Index width = 0;              // of the encoder; 0: that of the model
};

EngineConfig config_of(const Variant& v, const Layout& layout) {
  ModelConfig m = retrieval_model(v.pattern, 3, 2, v.encoder);
  m.retrieval.dropout = v.dropout;
  m.attention.num_heads = 4, m.attention.num_kv_heads = 2, m.attention.head_dim = 4, m.attention.bias = true;
  m.mamba.num_heads = 8, m.mamba.num_groups = 2, m.mamba.head_dim = 2;
  m.mlp.intermediate_size = 24, m.tie_word_embeddings = v.tied;
  m = with_encoder_width(m, v.width);
  EngineConfig c = retrieval_config(m, v.batch, v.chunks);
  c.micros = micros_of_all / layout.size(Axis::data);
  if (v.recomputed) c.recompute.all = RecomputeCost::sum;
  if (v.zero_bubble) c.schedule = zero_bubble;
  if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) c.schedule = interleaved;
  return c;
}

// One step, whose memory must be as planned.
StepOutcome step_on(Grid& grid, const Variant& v, std::uint64_t seed) {
  const Layout& layout = grid.layout();
  const EngineConfig config = config_of(v, layout);
  Rig<double> rig(config, grid);
  const int data = layout.size(Axis::data);
  const auto source = [&](int micro) { return retrieval_batch(config, seed + std::uint64_t(micro * data + grid.coordinate(Axis::data))); };
  StepOutcome outcome{rig.engine.gradients(source, config.micros, 1), {}};
  const Capacity used = rig.engine.measured();
  for (std::size_t c = 0; c < used.training.size(); ++c)
    EXPECT_EQ(used.training[c].bytes, rig.capacity.training[c].bytes) << v.pattern << " on " << layout.text() << ", chunk " << c;
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

// Each layout with one of the models.
void expect_gradients_of_one_rank(const std::vector<Variant>& variants, const std::vector<Layout>& all) {
  const std::uint64_t seed = seed_of_run() % 1000;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& v = variants[i];
    const StepOutcome one = step_on(single_rank_grid(4), v, seed);
    for (std::size_t l = i; l < all.size(); l += variants.size()) {
      const Layout& layout = all[(l + seed) % all.size()];
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      const Errors errors = errors_of(one, step_on(*grid, v, seed));
      EXPECT_TRUE(within_limits(errors, DType::f64))
          << v.pattern << " on " << layout.text() << ": loss " << errors.loss << ", norm " << errors.norm << ", gradient " << errors.worst_gradient();
    }
  }
  sync_ranks();
}

TEST(retrieval, gradients_equal_those_of_one_rank) {
  expect_gradients_of_one_rank(
      {{"*R-R", "*X-*-", 0.3}, {"PRMR", "X-*", 0, true}, {"R*-R", "*X-", 0, true, true, true}, {"P*R-", "*X-X-", 0.3, false, true}}, layouts());
}

// Layouts of a wider and of a narrower encoder with a table of its own, and with a tied table of the text.
TEST(retrieval, gradients_of_encoder_widths_equal_one_rank) {
  const Variant narrow{"*R-R", "*X-*-", 0.3, false, false, true, 8, 1, 6}, wide{"PRMR", "X-*", 0, true, false, false, 8, 1, 20};
  const auto every_second = [](const std::vector<Layout>& all) {
    std::vector<Layout> some;
    for (std::size_t l = seed_of_run() % 2; l < all.size(); l += 2) some.push_back(all[l]);
    return some;
  };
  expect_gradients_of_one_rank({narrow, wide}, every_second(layouts()));
  expect_gradients_of_one_rank({wide, narrow}, every_second(layouts_with_context()));
}

// Blocks of one chunk and of several chunks. Rows at the begin of a block read neighbours that another rank has encoded.
TEST(retrieval, context_parallel_gradients_equal_one_rank) {
  expect_gradients_of_one_rank({{"*R-R", "*X-*-", 0.3, false, false, false, 8, 2}, {"PRMR", "X-*", 0.3, true, false, false, 16, 1}},
                               layouts_with_context());
}

// Traffic of a full step with its update, by communicator and operation.
void expect_planned_traffic(const Variant& v, std::uint64_t seed) {
  std::vector<Layout> all = layouts();
  for (const Layout& layout : layouts_with_context()) all.push_back(layout);
  for (std::size_t l = seed % 2; l < all.size(); l += 2) {
    const Layout& layout = all[l];
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    const EngineConfig config = config_of(v, layout);
    Rig<double> rig(config, *grid);
    grid->visit([](Communicator& c) { c.clear_traffic(); });
    rig.engine.device().clear_work();
    MicroBatch batch = retrieval_batch(config, seed);
    std::fill(batch.source.lengths.begin(), batch.source.lengths.end(), config.model.retrieval.neighbour_length());  // masked tiles have no FLOPs
    rig.engine.train([&](int) { return batch; }, config.micros, 1, 1e-3);
    const RankPlan plan = plan_rank(in<double>(config), layout, grid->position());
    EXPECT_EQ(ledger_of(plan.traffic), ledger_of(traffic_of(*grid))) << layout.text();
    EXPECT_DOUBLE_EQ(plan.flops, rig.engine.device().flops()) << layout.text();
    for (const Memory memory : {Memory::weights, Memory::gradients, Memory::optimizer})
      EXPECT_EQ(rig.engine.measured().bytes(memory), plan.capacity.bytes(memory)) << layout.text() << " " << name_of(memory);
  }
  sync_ranks();
}

TEST(retrieval, traffic_and_flops_equal_the_plan) {
  const std::uint64_t seed = seed_of_run();
  expect_planned_traffic({"PR*R", "*X-*-", 0.3, false, false, false, 8}, seed);
  expect_planned_traffic({"PR*R", "*X-*-", 0.3, false, false, true, 8, 1, 12}, seed + 1);
}

}  // namespace
}  // namespace gyr::testing::retrieval_suite
