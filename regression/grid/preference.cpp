// SPDX-License-Identifier: BSD-3-Clause
// Preference training (DPO), reward models and policy training on grids of up to 8 ranks: loss, gradients and predictions equal those of
// one rank, whichever ranks hold the tokens of the two texts or of an answer, and the columns of the vocabulary.
#include <gtest/gtest.h>

#include <random>

#include "modules/objectives/objective.hpp"
#include "modules/objectives/policy_settings.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/sample_view.hpp"
#include "src/train/feed.hpp"
#include "src/train/validation.hpp"
#include "src/verify/random_data.hpp"

namespace gyr::testing::preference_suite {
namespace {

constexpr int micros_of_all = 8;

RunConfig run_of(Index seq_length, bool tied, std::shared_ptr<const Objective> objective = preference(0.3)) {
  Deck deck = Deck::parse(fmt::format("train: {{seq_length: {}}}\ndata: {{order: documents, documents: separate}}\n", seq_length), "deck");
  RunConfig run = read_run_config(deck);
  ModelConfig& m = run.model;
  m = named("T2").model;
  m.pattern = "*P--", m.tie_word_embeddings = tied, m.vocab_size = 29;
  m.attention.num_heads = 8, m.attention.num_kv_heads = 4, m.attention.head_dim = 4, m.mamba.num_heads = 8;
  m.mlp.intermediate_size = 16;
  m.dropout.embedding = 0.2;
  m.objective = std::move(objective);
  return run;
}

StepOutcome step_on(Grid& grid, const RunConfig& run, Index batch, Index first) {
  const Layout& layout = grid.layout();
  EngineConfig config;
  config.model = run.model;
  config.micro_batch_size = batch, config.seq_length = run.train.seq_length, config.micros = micros_of_all / layout.size(Axis::data), config.seed = 3;
  if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) config.schedule = interleaved;
  Rig<double> rig(config, grid);
  const auto source = feed([&](Index number) { return random_sample(run, number); }, first, config, grid);
  StepOutcome outcome{rig.engine.gradients(source, config.micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

TEST(preference, loss_and_gradients_equal_those_of_one_rank) {
  std::mt19937 random(seed_of_run());
  const auto by_token = policy({.clip = {0.2, 0.3, 3}, .kl = KlEstimator::k3, .entropy_bonus = true, .temperature = 1.2});
  const auto by_answer = policy({.ratio = PolicyRatio::sequence, .kl = KlEstimator::k2});
  for (const auto& [tied, objective] : {std::pair(false, preference(0.3)),
                                        {true, preference(0.3)},
                                        {false, reward(0.05)},
                                        {true, by_token},
                                        {false, by_answer},
                                        {false, value(0.2)}}) {
    const RunConfig run = run_of(Index(33 + random() % 12), tied, objective);
    const Index batch = Index(1 + random() % 2), first = batch * Index(random() % 100);
    const StepOutcome one = step_on(single_rank_grid(4), run, batch, first);
    ASSERT_GT(one.result.tokens, micros_of_all / 2) << "too few pairs";
    for (const Layout& layout : layouts_of_four_layers()) {
      Grid* const grid = grid_of(layout);
      if (!grid) continue;
      const StepOutcome many = step_on(*grid, run, batch, first);
      const Errors errors = errors_of(one, many);
      EXPECT_EQ(many.result.tokens, one.result.tokens);
      EXPECT_TRUE(within_limits(errors, DType::f64)) << layout.text() << (tied ? " tied " : " ") << objective->name() << ": loss " << errors.loss
                                                     << ", norm " << errors.norm << ", gradient " << errors.worst_gradient();
    }
  }
  sync_ranks();
}

// Expected validation: means of the predictions that one rank makes for all pairs.
Validation by_hand(const RunConfig& run, Index batch, Index first) {
  EngineConfig config;
  config.model = run.model;
  config.micro_batch_size = batch, config.seq_length = run.train.seq_length, config.micros = micros_of_all;
  Rig<double> rig(config, single_rank_grid(4));
  double preferred = 0, margins = 0, pairs = 0, loss = 0;
  for (Index i = 0; i < micros_of_all; ++i) {
    const auto samples = [&](Index b) { return random_sample(run, first + i * batch + b); };
    const auto source = feed([&](Index number) { return random_sample(run, number); }, first + i * batch, config, rig.engine.grid());
    const auto rows = rig.engine.scores(source, 1).at(0).rows;
    for (Index b = 0; b < batch; ++b) {
      const Sample sample = samples(b);
      const SampleView view = view_of(sample, first + i * batch + b, run.model);
      const std::span<const RowScore> of_sample(rows.data() + b * run.train.seq_length, std::size_t(run.train.seq_length));
      for (const Record& record : run.model.objective->predict(view, run.model.objective->label(view), of_sample))
        for (const auto& [name, value] : record) {
          const double* const number = std::get_if<double>(&value);
          if (name == "margin") margins += *number, preferred += *number > 0, ++pairs;
          if (name == "preference_loss" || name == "reward_loss") loss += *number;
        }
    }
  }
  return {loss / pairs, {{"accuracy", preferred / pairs}, {"margin", margins / pairs}}};
}

TEST(preference, validation_matches_predictions_on_any_grid) {
  std::mt19937 random(seed_of_run());
  const bool values = random() % 2 == 0;
  const RunConfig run = run_of(Index(33 + random() % 12), !values && random() % 2 == 0, values ? reward(0) : preference(0.3));
  const Index batch = Index(1 + random() % 2), first = batch * Index(random() % 100);
  const Validation expected = by_hand(run, batch, first);
  for (const Layout& layout : layouts_of_four_layers()) {
    Grid* const grid = grid_of(layout);
    if (!grid) continue;
    EngineConfig config;
    config.model = run.model;
    config.micro_batch_size = batch, config.seq_length = run.train.seq_length, config.micros = micros_of_all / layout.size(Axis::data);
    if (Index(layout.stages.size()) > layout.size(Axis::pipeline)) config.schedule = interleaved;
    Rig<double> rig(config, *grid);
    Validator validator(rig.engine);
    validator.add(feed([&](Index number) { return random_sample(run, number); }, first, config, *grid), config.micros);
    const Validation found = validator.result();
    EXPECT_NEAR(found.loss, expected.loss, 1e-11) << layout.text();
    ASSERT_EQ(found.figures.size(), 2u) << layout.text();
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(found.figures[i].first, expected.figures[i].first);
      EXPECT_NEAR(found.figures[i].second, expected.figures[i].second, 1e-11) << layout.text();
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::preference_suite
