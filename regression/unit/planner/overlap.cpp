// SPDX-License-Identifier: BSD-3-Clause
// Predicted overlap of context-parallel transfers with attention.
#include "regression/planner/random_run.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr::testing::overlap_suite {
namespace {

// A small random run with context parallelism on up to 16 ranks.
Drawn draw_context(Dice& dice) {
  const int context = dice.one_of<int>({2, 4, 8}), data = dice.one_of<int>({1, 2}), micros = dice.between(1, 3);
  const std::string text = fmt::format(
      "model:\n  pattern: {}\n  vocab_size: 64\n  hidden_size: 32\n  attention: {{num_heads: 8, num_kv_heads: 8, head_dim: 4}}\n"
      "  mamba: {{num_heads: 4, head_dim: 4, state_size: 4, chunk_size: 4}}\n  mlp: {{intermediate_size: 16}}\n"
      "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: 128}}\n"
      "parallel: {{data: {}, context: {}, context_mode: {}}}\nactivation: {{recompute: {}}}\n",
      dice.one_of<std::string>({"\"*-*-\"", "PP", "W-W-"}), micros * data, data, context, dice.one_of<std::string>({"ring", "balanced", "heads"}),
      dice.one_of<std::string>({"none", "selective", "full"}));
  Deck deck = Deck::parse(text, "drawn");
  Drawn d{read_run_config(deck), {}, {}};
  d.layout = layout_of(d.run, data * context);
  d.config = engine_config(d.run, d.layout);
  return d;
}

// Slower attention hides more communication, but never more than the time that it adds.
TEST(overlap, slower_kernels_never_predict_a_faster_step) {
  Dice dice(seed_of_run());
  int hiding = 0;
  for (int i = 0; i < 60; ++i) {
    const Drawn d = draw_context(dice);
    Cluster c = random_cluster(dice);
    c.links_overlap = true;
    const StagePlans plans(d.config, d.layout);
    Prediction before = predict(plans, d.config, d.layout, c);
    for (int slower = 0; slower < 6; ++slower) {
      c.fit.fused *= 0.5, c.fit.gemms *= dice.coin() ? 0.7 : 1;
      const Prediction after = predict(plans, d.config, d.layout, c);
      EXPECT_GE(after.seconds, before.seconds * (1 - 1e-12)) << d.layout.text() << " " << d.config.model.pattern;
      hiding += after.transfers < before.transfers * (1 - 1e-9);
      before = after;
    }
  }
  EXPECT_GT(hiding, 20) << "too few drawn runs hide communication";
}

}  // namespace
}  // namespace gyr::testing::overlap_suite
