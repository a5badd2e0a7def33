// SPDX-License-Identifier: BSD-3-Clause
// ZeRO sharding changes no result. On two ranks with one micro-batch each, every sum has the same two terms, so full
// runs have the same bits. On more ranks, losses stay those of the unsharded run up to rounding.
#include <cmath>

#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/header.hpp"

namespace gyr::testing::shard_suite {
namespace {

constexpr Index seq_length = 6;
constexpr int steps = 3;
const std::vector<Shard> levels{Shard::optimizer, Shard::gradients, Shard::weights};

struct Setting {
  std::vector<std::string> frozen = {};
  RecomputeConfig recompute = {};
  int micros = 1;
  Schedule schedule = one_f_one_b;
};

template <class T>
struct TrainedOn {
  TrainedOn(const ModelConfig& model, Grid& grid, const Setting& setting) : rig(config_of(model, setting), grid), grid(grid) {}
  static EngineConfig config_of(const ModelConfig& model, const Setting& setting) {
    EngineConfig c;
    c.model = model, c.seq_length = seq_length, c.micros = setting.micros;
    c.optimizer.clip_grad = 0;  // the sharded norm is summed in another order
    c.optimizer.frozen = setting.frozen, c.recompute = setting.recompute, c.schedule = setting.schedule;
    return c;
  }
  // Loss of a training step. Step 2 is a validation.
  double step(int number) {
    const auto source = [&](int micro) {
      return micro_batch((Index(number) * 4 + micro) * grid.size(Axis::data) + grid.coordinate(Axis::data), 1, seq_length,
                         rig.engine.model().vocab_size);
    };
    if (number == 2) return rig.engine.evaluate(source, 1).first;
    return rig.engine.train(source, rig.engine.config().micros, number, 1e-3).loss;
  }
  Rig<T> rig;
  Grid& grid;
};

// Compares the state that one engine keeps with the same elements of an engine that keeps everything.
template <class T>
void expect_same_bits(Engine& sharded_run, Engine& unsharded, const std::string& where) {
  const auto& mine = sharded_run.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (const Content content : {Content::weight, Content::state("first_moment"), Content::state("second_moment"), Content::master}) {
      const Piece part = sharded_run.tensor(*mine[i], content), all = unsharded.tensor(*unsharded.parameters()[i], content);
      ASSERT_EQ(bool(part), bool(all));
      if (!part || part.values.size == 0) continue;
      const AnyTensor same = rows(all.values, part.of.first, part.of.size());
      ASSERT_EQ(std::memcmp(part.values.data, same.data, std::size_t(same.bytes())), 0)
          << where << ": " << name_of(content) << " of " << mine[i]->weight.name;
    }
}

template <class T>
void expect_unsharded_bits(const ModelConfig& model, const Layout& layout, const Setting& setting, const std::string& name) {
  Grid* const grid = grid_of(layout);
  for (const Shard level : levels)
    for (const Index bucket_bytes : {Index(1), Index(1) << 30}) {
      Grid* const sharded_grid = grid_of(sharded(layout, level, bucket_bytes));
      if (!grid) continue;
      const std::string where = fmt::format("{} on {}, buckets of {}", name, sharded_grid->layout().text(), bucket_bytes);
      TrainedOn<T> unsharded(model, *grid, setting), sharded_run(model, *sharded_grid, setting);
      for (int number = 1; number <= steps; ++number) ASSERT_EQ(unsharded.step(number), sharded_run.step(number)) << where << ", step " << number;
      expect_same_bits<T>(sharded_run.rig.engine, unsharded.rig.engine, where);
    }
  sync_ranks();
}

template <class T>
void everywhere(const std::string& name) {
  const ModelConfig model = widened(named(name));
  for (const Layout& layout :
       {layout_of(2, 1, 1), layout_of(2, 2, 1), layout_of(2, 1, 4), with_sequence(layout_of(2, 2, 2)),
        with_separate_mixers(with_sequence(layout_of(2, 1, 4)), 2), layout_with_context(1, 2, 2, 1, SequenceOrder::contiguous)})
    expect_unsharded_bits<T>(model, layout, {}, name);
}

// T5: tied embeddings and one key head. T2: two norm groups.
TEST(shard, sharding_keeps_bits_on_two_ranks_in_double) { everywhere<double>("T5"); }
TEST(shard, sharding_keeps_bits_on_two_ranks_in_float) { everywhere<float>("T2"); }
TEST(shard, sharding_keeps_bits_on_two_ranks_in_bf16) { everywhere<bf16>("T5"); }

TEST(shard, sharding_keeps_bits_with_frozen_weights_and_recomputation) {
  Setting setting;
  setting.frozen = {"*.k_proj.weight", "*.up_proj.weight", "model.layers.1.*", "*norm*"};
  setting.recompute.all = RecomputeCost::pass;
  for (const Layout& layout : {layout_of(2, 1, 2), layout_of(2, 2, 1)})
    expect_unsharded_bits<bf16>(widened(named("T2")), layout, setting, "T2 frozen");
}

// Sums over micro-batches and over more than two ranks are taken in another order.
TEST(shard, sharding_keeps_the_loss_on_more_ranks) {
  const ModelConfig model = widened(named("T5"));
  for (const Schedule schedule : {one_f_one_b, zero_bubble})
    for (const Layout& layout : {layout_of(3, 1, 2), layout_of(4, 2, 1), layout_of(8, 1, 1)}) {
      Setting setting;
      setting.micros = 3, setting.schedule = layout.size(Axis::pipeline) > 1 ? schedule : one_f_one_b;
      Grid* const grid = grid_of(layout);
      for (const Shard level : levels) {
        Grid* const sharded_grid = grid_of(sharded(layout, level));
        if (!grid) continue;
        TrainedOn<double> unsharded(model, *grid, setting), sharded_run(model, *sharded_grid, setting);
        for (int number = 1; number <= steps; ++number) {
          const double expected = unsharded.step(number), loss = sharded_run.step(number);
          EXPECT_NEAR(loss, expected, 1e-9 * std::abs(expected)) << sharded_grid->layout().text() << ", step " << number;
        }
      }
      sync_ranks();
    }
}

// Optimizer bytes per rank fall in proportion to the number of ranks, except for the padding that makes the shards
// equal.
TEST(shard, optimizer_bytes_fall_with_data_parallel_ranks) {
  const ModelConfig model = widened(named("T2"));
  EngineConfig config;
  config.model = model, config.seq_length = seq_length;
  for (const int data : {2, 3, 8, 64}) {
    const Layout layout = layout_of(data, 1, 1);
    const Capacity unsharded = predicted_capacity(in<bf16>(config), layout, 0);
    for (const Shard level : levels) {
      const Layout sharded_layout = sharded(layout, level, Index(1) << 30);
      const Capacity sharded_run = predicted_capacity(in<bf16>(config), sharded_layout, data - 1);
      const Index padding = 2 * 64 * data * 4;  // padding of two sections, with elements of four bytes
      EXPECT_LE(sharded_run.optimizer * data - unsharded.optimizer, 3 * padding);
      EXPECT_GE(sharded_run.optimizer * data, unsharded.optimizer);
      EXPECT_TRUE(level != Shard::optimizer || sharded_run.gradients - unsharded.gradients <= padding);
    }
  }
}

}  // namespace
}  // namespace gyr::testing::shard_suite
