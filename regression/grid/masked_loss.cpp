// SPDX-License-Identifier: BSD-3-Clause
// The loss of a step is the mean over the labelled tokens of the global batch, even if ranks and micro-batches have
// different label counts. It equals the summed loss of all sequences, each evaluated separately, over the number of
// labels.
#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::masked_loss_suite {
namespace {

constexpr Index sequences = 8, seq_length = 11;

// Sequence s keeps s of its 10 labels: the first sequence has none, the last one 7.
MicroBatch masked(Index s, Index vocab_size) {
  MicroBatch m = micro_batch(s, 1, seq_length, vocab_size);
  for (Index t = 0; t < seq_length; ++t)
    if ((3 * t) % 10 >= s) m.labels[std::size_t(t)] = ignored_label;
  return m;
}

EngineConfig config_of(const ModelConfig& model, Index micros) {
  EngineConfig c;
  c.model = model;
  c.seq_length = seq_length, c.micros = int(micros);
  return c;
}

// Expected loss and label count: every sequence is evaluated separately, and the losses are summed.
std::pair<double, Index> by_hand(const ModelConfig& model) {
  Rig<double> rig(config_of(model, 1), single_rank_grid(8));
  double sum = 0;
  Index tokens = 0;
  for (Index s = 0; s < sequences; ++s) {
    const MicroBatch m = masked(s, model.vocab_size);
    const auto [loss, count] = rig.engine.evaluate([&](int) { return m; }, 1);
    EXPECT_EQ(count, Index(std::count_if(m.labels.begin(), m.labels.end(), [](Token t) { return t != ignored_label; })));
    sum += loss, tokens += count;
  }
  return {sum / double(tokens), tokens};
}

TEST(masked_loss, loss_is_mean_over_labels_of_global_batch) {
  const ModelConfig model = widened(named("T2"));
  const auto [loss, tokens] = by_hand(model);
  EXPECT_EQ(tokens, 28);
  std::map<std::string, std::vector<double>> gradients;
  for (const auto [data, pipeline, tensor] : {std::array{1, 1, 1}, {4, 1, 1}, {4, 1, 2}, {2, 4, 1}}) {
    const std::string where = fmt::format("data {} pipeline {} tensor {}", data, pipeline, tensor);
    std::vector<Span> stages;
    for (int s = 0; s < pipeline; ++s) stages.push_back({8 * s / pipeline, 8 * (s + 1) / pipeline});
    Grid* grid = grid_of(grid_layout(data, pipeline, tensor, stages));
    if (!grid) continue;
    Rig<double> rig(config_of(model, sequences / data), *grid);
    const int mine = grid->coordinate(Axis::data);
    const auto source = [&, d = data](int i) { return masked(Index(i) * d + mine, model.vocab_size); };
    const StepResult result = rig.engine.gradients(source, rig.engine.config().micros, 1);
    EXPECT_EQ(result.tokens, tokens) << where;
    EXPECT_NEAR(result.loss, loss, 1e-12 * loss) << where;
    const auto mine_gathered = gathered_gradients(rig.engine);
    if (gradients.empty() && data == 1) gradients = mine_gathered;
    for (const auto& [name, g] : gradients)
      for (std::size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(mine_gathered.at(name)[i], g[i], 1e-12) << where << " " << name;
  }
  sync_ranks();
}

TEST(masked_loss, batch_without_labels_stops_before_any_update) {
  const ModelConfig model = widened(named("T2"));
  Grid& grid = *grid_of(grid_layout(4, 1, 2, {{0, 8}}));
  Rig<double> rig(config_of(model, 1), grid);
  const auto weights = [&] {
    std::vector<double> all;
    for (const auto& p : rig.engine.stage().parameters().all()) {
      const auto v = p->template vector<double>();
      all.insert(all.end(), v.data(), v.data() + p->size());
    }
    return all;
  };
  const auto before = weights();
  const auto nothing = [&](int) { return masked(0, model.vocab_size); };
  try {
    rig.engine.train(nothing, 1, 5, 1e-2);
    ADD_FAILURE() << "a step without labels was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find("step 5: no token of the batch has a label"), std::string::npos) << error.what();
  }
  EXPECT_EQ(weights(), before);
  EXPECT_EQ(rig.engine.evaluate(nothing, 1), (std::pair<double, Index>(0, 0)));
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::masked_loss_suite
