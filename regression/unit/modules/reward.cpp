// SPDX-License-Identifier: BSD-3-Clause
// Reward models: loss and gradient on pairs of texts, predictions, and the rows at which texts are valued.
#include <algorithm>
#include <cmath>
#include <random>

#include "modules/objectives/objective.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/sample_view.hpp"
#include "src/train/feed.hpp"
#include "src/verify/random_data.hpp"

namespace gyr::testing::reward_suite {
namespace {

// Random sequences of a run, with at least one pair.
struct Drawn {
  double center;
  RunConfig run;
  std::vector<Sample> samples;
  MicroBatch batch;

  Drawn(std::mt19937& random, Index count, const std::string& pattern = "PM*-") : center(double(random() % 3) / 10) {
    Deck deck = Deck::parse(fmt::format("train: {{seq_length: {}}}\ndata: {{order: documents, documents: separate}}\n", 16 + random() % 20), "deck");
    run = read_run_config(deck);
    run.model = named("T2").model;
    run.model.pattern = pattern, run.model.tie_word_embeddings = false;
    run.model.objective = reward(center);
    for (Index first = Index(random() % 1000); std::ranges::count(batch.values[label_of_pair], 0) == 0; first += count) {
      samples.clear();
      for (Index b = 0; b < count; ++b) samples.push_back(random_sample(run, first + b));
      batch = micro_batch_of([&](Index i) { return samples[std::size_t(i)]; }, run.model, 0, count, run.train.seq_length);
    }
  }
  EngineConfig config() const {
    EngineConfig c;
    c.model = run.model;
    c.micro_batch_size = batch.batch, c.seq_length = batch.seq_length;
    return c;
  }
};

using Pair = std::pair<double, double>;  // values of the chosen and the rejected text

double loss_of(const std::vector<Pair>& pairs, double center) {
  double sum = 0;
  for (const auto& [chosen, rejected] : pairs) sum += std::log(1 + std::exp(rejected - chosen)) + center * (chosen + rejected) * (chosen + rejected);
  return sum;
}

// Values of the last row of each text of complete pairs, from the values of all rows.
std::vector<Pair> pairs_of(const Drawn& d, const std::vector<RowScore>& rows) {
  std::vector<Pair> pairs;
  for (std::size_t b = 0; b < d.samples.size(); ++b) {
    const auto value = [&](const TextSpan& text) {
      const Index last = std::min(text.first + text.count, d.batch.seq_length) - 1;
      return rows[b * std::size_t(d.batch.seq_length) + std::size_t(last)].loss;
    };
    const std::vector<TextSpan>& texts = d.samples[b].texts;
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2)
      if (texts[i + 1].first < d.batch.seq_length) pairs.emplace_back(value(texts[i]), value(texts[i + 1]));
  }
  return pairs;
}

TEST(reward, loss_of_given_values_is_the_published_one) {
  const std::vector<Pair> pairs{{0.3, 0.5}, {1.2, -0.4}, {-0.7, -0.9}};
  EXPECT_NEAR(loss_of(pairs, 0) / 3, 0.526726159884, 1e-12);
  EXPECT_NEAR(loss_of(pairs, 0.01) / 3, 0.539526159884, 1e-12);
}

TEST(reward, loss_and_predictions_match_plain_loops) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    const Drawn d(random, 1 + draw % 3);
    Rig<double> rig(d.config(), single_rank_grid(d.run.model.layers()));
    set_weights(rig.engine);
    const auto source = [&](int) { return d.batch; };
    const ObjectiveScores scores = rig.engine.scores(source, 1).at(0);
    const std::vector<Pair> pairs = pairs_of(d, scores.rows);
    ASSERT_EQ(scores.margins.size(), pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(scores.margins[i], pairs[i].first - pairs[i].second);
    const double expected = loss_of(pairs, d.center);
    const auto [sum, count] = rig.engine.evaluate(source, 1);
    EXPECT_EQ(count, Index(pairs.size()));
    EXPECT_NEAR(sum, expected, 1e-12 * std::max(1.0, expected));
    EXPECT_NEAR(rig.engine.gradients(source, 1, 1).loss, expected / double(pairs.size()), 1e-12 * std::max(1.0, expected));
    std::size_t at = 0;
    for (std::size_t b = 0; b < d.samples.size(); ++b) {
      const SampleView view = view_of(d.samples[b], Index(b), d.run.model);
      const auto length = std::size_t(d.batch.seq_length);
      const Objective& task = *d.run.model.objective;
      for (const Record& record : task.predict(view, task.label(view), std::span(scores.rows).subspan(b * length, length))) {
        ASSERT_LT(at, pairs.size());
        EXPECT_EQ(std::get<double>(record.at(1).second), pairs[at].first);
        EXPECT_EQ(std::get<double>(record.at(2).second), pairs[at].second);
        ++at;
      }
    }
    EXPECT_EQ(at, pairs.size());
  }
}

TEST(reward, gradients_match_finite_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"P", "M-", "*-*-", "LE"}) {
    const Drawn d(random, 2, pattern);
    SCOPED_TRACE(fmt::format("{}, center {}", pattern, d.center));
    Rig<double> rig(d.config(), single_rank_grid(d.run.model.layers()));
    set_weights(rig.engine);
    expect_differences_of(rig.engine, d.batch);
  }
}

TEST(reward, training_separates_the_texts) {
  std::mt19937 random(seed_of_run());
  const Drawn d(random, 3);
  Rig<float> rig(d.config(), single_rank_grid(d.run.model.layers()));
  set_weights(rig.engine);
  const auto source = [&](int) { return d.batch; };
  const double before = rig.engine.gradients(source, 1, 1).loss;
  double loss = before;
  for (int step = 1; step <= 40; ++step) loss = rig.engine.train(source, 1, step, 3e-3).loss;
  EXPECT_LT(loss, 0.3 * before);
  const Scores scores = rig.engine.scores(source, 1);
  for (const double margin : scores.at(0).margins) EXPECT_GT(margin, 0);
}

}  // namespace
}  // namespace gyr::testing::reward_suite
