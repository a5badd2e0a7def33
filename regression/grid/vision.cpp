// SPDX-License-Identifier: BSD-3-Clause
// Models with a vision tower on grids of up to 8 ranks: loss and every gradient equal those of one rank, and memory, traffic and
// FLOPs of a step equal its plan.
#include <gtest/gtest.h>

#include "regression/support/closed_form.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/images.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::vision_suite {
namespace {

constexpr int micros_of_all = 8;  // micro-batches of a step on all data-parallel ranks
constexpr Index layers = 8;

std::vector<Layout> layouts() {
  std::vector<Layout> all{layout_of(8, 1, 1), layout_of(1, 1, 8), layout_of(2, 4, 1), layout_of(1, 2, 4), layout_of(2, 2, 2), layout_of(1, 8, 1)};
  for (const Layout& layout : {layout_of(1, 1, 8), layout_of(1, 2, 4), layout_of(2, 1, 4), layout_of(1, 4, 2)}) all.push_back(with_sequence(layout));
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    all.push_back(sharded(layout_of(4, 2, 1), shard, 1));
    all.push_back(with_sequence(sharded(layout_of(2, 2, 2), shard)));
  }
  return all;
}

struct Variant {
  const char* pattern;
  VisionTower tower;
  bool recomputed = false, zero_bubble = false, offloaded = false;
  std::vector<Index> smaller = {};  // rows of smaller planned inputs
};

EngineConfig config_of(const Variant& v, const Layout& layout) {
  ModelConfig m = image_model(v.pattern, v.tower);
  m.attention.num_heads = 4, m.attention.num_kv_heads = 2, m.attention.head_dim = 4, m.hidden_size = 16;
  m.mamba.num_heads = 8, m.mamba.num_groups = 2, m.mamba.head_dim = 2;
  m.mlp.intermediate_size = 24;
  m.vision.num_heads = 4, m.vision.hidden_size = 16, m.vision.intermediate_size = 8;
  EngineConfig c = image_config(m, 1, 14);
  c.micros = micros_of_all / layout.size(Axis::data);
  if (v.recomputed) c.recompute.all = RecomputeCost::sum;
  if (v.zero_bubble) c.schedule = zero_bubble;
  if (v.offloaded) c.offload.on = true, c.offload.alpha = 1;
  c.smaller_sources = v.smaller;
  return c;
}

// Micro-batches with two, one and no images.
MicroBatch batch_of(const EngineConfig& c, std::uint64_t seed) { return image_batch(c, {Index(seed % 3)}, seed); }

// One step, whose memory must be as planned.
StepOutcome step_on(Grid& grid, const Variant& v, std::uint64_t seed) {
  const Layout& layout = grid.layout();
  const EngineConfig config = config_of(v, layout);
  Rig<double> rig(config, grid);
  const int data = layout.size(Axis::data);
  const auto source = [&](int micro) {
    MicroBatch batch = batch_of(config, seed + std::uint64_t(micro * data + grid.coordinate(Axis::data)));
    const Index rows = batch.source.lengths[0];
    for (const Index room : config.smaller_sources)
      if (rows <= room && batch.source.length > room) {
        batch.source.length = room;
        batch.source.values[image_pixels].resize(std::size_t(room * config.model.vision.patch_values()));
      }
    return batch;
  };
  StepOutcome outcome{rig.engine.gradients(source, config.micros, 1), {}};
  const Capacity used = rig.engine.measured();
  for (std::size_t c = 0; c < used.training.size() && config.smaller_sources.empty(); ++c)
    EXPECT_EQ(used.training[c].bytes, rig.capacity.training[c].bytes) << v.pattern << " on " << layout.text() << ", chunk " << c;
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

TEST(vision, gradients_equal_those_of_one_rank) {
  const std::uint64_t seed = seed_of_run() % 1000;
  const std::vector<Variant> variants{{"*-*-VP*-", VisionTower::clip},
                                      {"*-VM*-*-", VisionTower::siglip, true, false, false, {4}},
                                      {"*--V*-P-", VisionTower::clip, true, true},
                                      {"*-V-*-*-", VisionTower::siglip, false, false, true}};
  const std::vector<Layout> all = layouts();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& v = variants[i];
    const StepOutcome one = step_on(single_rank_grid(layers), v, seed);
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

// Traffic of a full step with its update, by communicator and operation.
TEST(vision, traffic_and_flops_equal_the_plan) {
  const std::vector<Layout> all = layouts();
  for (std::size_t l = seed_of_run() % 2; l < all.size(); l += 2) {
    const Layout& layout = all[l];
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    const EngineConfig config = config_of({"*-*-VP*-", VisionTower::clip}, layout);
    Rig<double> rig(config, *grid);
    grid->visit([](Communicator& c) { c.clear_traffic(); });
    rig.engine.device().clear_work();
    const MicroBatch batch = image_batch(config, {2}, seed_of_run());
    rig.engine.train([&](int) { return batch; }, config.micros, 1, 1e-3);
    const RankPlan plan = plan_rank(in<double>(config), layout, grid->position());
    EXPECT_EQ(ledger_of(plan.traffic), ledger_of(traffic_of(*grid))) << layout.text();
    EXPECT_DOUBLE_EQ(plan.flops, rig.engine.device().flops()) << layout.text();
    for (const Memory memory : {Memory::weights, Memory::gradients, Memory::optimizer})
      EXPECT_EQ(rig.engine.measured().bytes(memory), plan.capacity.bytes(memory)) << layout.text() << " " << name_of(memory);
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::vision_suite
