// SPDX-License-Identifier: BSD-3-Clause
// Non-finite values in a weight: every rank reports the name of that weight, on any layout.
#include "src/engine/step/non_finite.hpp"

#include <limits>

#include "modules/cost/flops.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::non_finite_suite {
namespace {

constexpr Index batch = 8;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Error on this rank for a gradient step with NaN in the given weight.
std::string message_of(Rig<double>& rig, Grid& grid, const std::string& weight) {
  set_weights(rig.engine);
  for (const auto& p : rig.engine.stage().parameters().all())
    if (p->weight.name == weight) assign(rig.engine.device(), *p, [](Index) { return nan; });
  rig.engine.optimizer().reset(rig.engine.device());
  const Index data = grid.size(Axis::data), micros = batch / data;
  const auto source = [&](int i) { return micro_batch(Index(i) * data + grid.coordinate(Axis::data), 1, 7, rig.engine.model().vocab_size); };
  const Error error = error_of([&] { rig.engine.gradients(source, int(micros), 3); });
  EXPECT_EQ(error.code, Exit::numeric);
  return error.what();
}

TEST(non_finite, non_finite_weight_is_named_on_any_layout) {
  ModelConfig model = widened(named("T5"));  // tied embeddings
  model.pattern = "PMP*";
  model.attention.num_kv_heads = 8, model.mamba.num_groups = 8;
  const auto sharded_layout = [&](Layout layout) {
    const Index stages = layout.size(Axis::pipeline);
    layout.stages.clear();
    for (Index s = 0; s < stages; ++s) layout.stages.push_back({4 * s / stages, 4 * (s + 1) / stages});
    return layout;
  };
  for (const Layout& layout :
       {layout_of(1, 1, 2), with_separate_mixers(layout_of(1, 1, 2), 1), with_separate_mixers(layout_of(2, 1, 2), 1),
        with_separate_mixers(layout_of(1, 2, 4), 2), sharded(with_separate_mixers(layout_of(2, 2, 2), 1), Shard::weights), layout_of(1, 4, 1)}) {
    if (Grid* grid = grid_of(sharded_layout(layout))) {
      EngineConfig config;
      config.model = model, config.seq_length = 7, config.micros = int(batch / grid->size(Axis::data));
      Rig<double> rig(config, *grid);
      for (const Weight& w : declared_weights(model)) {
        const std::string text = message_of(rig, *grid, w.name);
        EXPECT_NE(text.find("first seen in the value of " + w.name + ". "), std::string::npos) << grid->layout().text() << ": " << text;
      }
    }
    sync_ranks();
  }
}

}  // namespace
}  // namespace gyr::testing::non_finite_suite
