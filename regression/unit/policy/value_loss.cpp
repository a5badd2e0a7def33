// SPDX-License-Identifier: BSD-3-Clause
// Loss of a critic: published values, the head against plain loops in double, and its gradients.
#include "modules/objectives/value_loss.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "modules/objectives/objective.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/policy/iteration_figures.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::value_loss_suite {
namespace {

struct PlainLoss {
  double loss = 0, clipped = 0;  // clipped: tokens
};

// `y`: new values of the tokens of each rollout that counts, in order.
PlainLoss plain_loss(const std::vector<const Rollout*>& rollouts, const std::vector<std::vector<double>>& returns,
                     const std::vector<std::vector<double>>& y, double clip) {
  PlainLoss p;
  double tokens = 0;
  for (const Rollout* r : rollouts) tokens += double(r->length());
  for (std::size_t i = 0; i < rollouts.size(); ++i)
    for (std::size_t t = 0; t < y[i].size(); ++t) {
      const double v = rollouts[i]->values[t], limited = std::min(std::max(y[i][t], v - clip), v + clip);
      const double free = std::pow(y[i][t] - returns[i][t], 2), bounded = clip > 0 ? std::pow(limited - returns[i][t], 2) : free;
      p.loss += 0.5 * std::max(free, bounded) / tokens, p.clipped += bounded > free;
    }
  return p;
}

// Values of TRL 1.8.0 for the same rollouts.
TEST(value_loss, published_loss_and_explained_variance) {
  const Rollouts r = six_rollouts();
  PolicyConfig c;
  c.advantage = {PolicyAlgorithm::ppo, AdvantageScale::group, RewardKl::k1, 0.1, 0.98, 0.9, CutReward::bootstrap};
  const Targets targets = targets_of(r, c);
  std::vector<const Rollout*> all;
  std::vector<std::vector<double>> y(r.all.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    all.push_back(&r.all[i]);
    for (Index t = 0; t < r.all[i].length(); ++t) y[i].push_back(new_value(Index(i), t));
  }
  const PlainLoss p = plain_loss(all, targets.returns, y, 0.2);
  EXPECT_NEAR(p.loss, 0.765446120491, 1e-11);
  EXPECT_EQ(p.clipped, 2);
  EXPECT_NEAR(*figures_of(r, targets, c, 1).explained_variance, -0.434210057120, 1e-11);
}

// Answers to drawn prompts, a model and the windows that it trains on.
struct Drawn {
  Rollouts rollouts;
  PolicyConfig policy;
  Targets targets;
  PackedMinibatch minibatch;
  ModelConfig model = named("T2").model;
  Index seq_length;
  double clip;

  explicit Drawn(std::mt19937& random, const char* pattern = "PM*-")
      : rollouts(drawn_rollouts(random)), seq_length(12 + Index(random() % 12)), clip(random() % 3 == 0 ? 0 : 0.3) {
    policy.advantage.algorithm = PolicyAlgorithm::ppo, policy.cut = CutAnswers(random() % 2);
    if (rollouts.all.size() > 2) rollouts.all[1].reward.reset();
    model.pattern = pattern, model.tie_word_embeddings = false, model.objective = value(clip);
    targets = targets_of(rollouts, policy);
    std::vector<Index> members;
    for (std::size_t i = 0; i < rollouts.all.size(); ++i) members.push_back(Index(i));
    minibatch = packed(rollouts, members, seq_length);
  }
  bool counts(const Rollout& r) const { return r.reward && (r.ended() || policy.cut == CutAnswers::keep); }
  MicroBatch batch() const {
    const MinibatchValues values(rollouts, targets, minibatch, policy);
    return micro_batch_of([&](Index w) { return values.critic_sample(w); }, model, 0, minibatch.size() + 1, seq_length);
  }
  EngineConfig config() const {
    EngineConfig c;
    c.model = model, c.micro_batch_size = minibatch.size() + 1, c.seq_length = seq_length;
    return c;
  }
  // Values of the answers by the engine. Those before the update are near them, so that some rows are clipped and some are not.
  std::vector<std::vector<double>> score(Engine& engine, std::mt19937& random) {
    const MicroBatch b = batch();
    const Scores scores = engine.scores([&](int) { return b; }, 1);
    std::vector<std::vector<double>> y(rollouts.all.size());
    for (Index w = 0; w < minibatch.size(); ++w)
      visit_answer_rows(rollouts, minibatch.windows[std::size_t(w)], [&](Index i, Index t, Index row) {
        const double value = scores.at(0).rows.at(std::size_t(w * seq_length + row)).loss;
        y[std::size_t(i)].push_back(value);
        rollouts.all[std::size_t(i)].values[std::size_t(t)] = value + (double(random() % 1000) / 1000 - 0.5);
      });
    return y;
  }
};

TEST(value_loss, head_matches_plain_loops_with_masked_answers) {
  std::mt19937 random(seed_of_run());
  double clipped = 0;
  for (int draw = 0; draw < 24; ++draw) {
    Drawn d(random);
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    const auto y = d.score(rig.engine, random);
    const MicroBatch b = d.batch();
    const StepResult result = rig.engine.gradients([&](int) { return b; }, 1, 1);
    std::vector<const Rollout*> counted;
    std::vector<std::vector<double>> returns, values;
    for (std::size_t i = 0; i < d.rollouts.all.size(); ++i)
      if (d.counts(d.rollouts.all[i])) counted.push_back(&d.rollouts.all[i]), returns.push_back(d.targets.returns[i]), values.push_back(y[i]);
    const PlainLoss expected = plain_loss(counted, returns, values, d.clip);
    double tokens = 0;
    for (const Rollout* r : counted) tokens += double(r->length());
    EXPECT_NEAR(result.loss, expected.loss, 1e-11) << "draw " << draw;
    EXPECT_NEAR(*result.ahead_losses.at(0), expected.clipped / std::max(1.0, tokens), 1e-12) << "draw " << draw;
    EXPECT_NEAR(rig.engine.evaluate([&](int) { return b; }, 1).first, expected.loss, 1e-11) << "draw " << draw;
    clipped += expected.clipped;
  }
  EXPECT_GT(clipped, 0) << "no row was clipped";
}

TEST(value_loss, gradients_match_finite_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"P", "M-", "*-*-", "LE"}) {
    Drawn d(random, pattern);
    SCOPED_TRACE(fmt::format("{}, clip {}", pattern, d.clip));
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    d.score(rig.engine, random);
    const MicroBatch b = d.batch();
    const auto loss = [&] { return rig.engine.gradients([&](int) { return b; }, 1, 1).loss; };
    loss();
    const auto kept = gathered_gradients(rig.engine);
    expect_differences(rig.engine, kept, loss);
  }
}

TEST(value_loss, head_begins_at_zero) {
  std::mt19937 random(seed_of_run());
  const Drawn d(random);
  Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
  rig.engine.initialise(3);
  const MicroBatch b = d.batch();
  const Scores scores = rig.engine.scores([&](int) { return b; }, 1);
  ASSERT_FALSE(scores.at(0).rows.empty());
  for (const RowScore& row : scores.at(0).rows) EXPECT_EQ(row.loss, 0);
}

}  // namespace
}  // namespace gyr::testing::value_loss_suite
