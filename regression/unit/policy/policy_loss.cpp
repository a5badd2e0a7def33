// SPDX-License-Identifier: BSD-3-Clause
// Loss of policy training: published values per row, the head against plain loops in double, and its gradients.
#include "modules/objectives/policy_loss.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/differences.hpp"
#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/policy/advantages.hpp"
#include "src/policy/window_samples.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::policy_loss_suite {
namespace {

// Loss, and its derivative with respect to the log-probability of each token, in the order of the answers.
struct PlainLoss {
  double loss = 0;
  std::vector<double> slopes = {};
  double clipped_low = 0, clipped_high = 0;  // tokens
};

struct Rules {
  PolicySettings settings;
  LossAggregate aggregate = LossAggregate::token;
  double kl = 0;
  Index max_new_tokens = 4;
};

double weight_of(const Rules& rules, const Rollout& r, double answers, double tokens) {
  if (rules.aggregate == LossAggregate::token) return 1 / tokens;
  return 1 / (answers * (rules.aggregate == LossAggregate::sequence ? double(r.length()) : double(rules.max_new_tokens)));
}

// `x`: new log-probabilities of the tokens of each rollout. `corrections`: per token.
PlainLoss plain_loss(const Rollouts& rollouts, const std::vector<std::vector<double>>& advantages, const std::vector<std::vector<double>>& x,
                     const Rules& rules, const std::vector<std::vector<double>>& corrections = {}) {
  PlainLoss p;
  double tokens = 0;
  for (const Rollout& r : rollouts.all) tokens += double(r.length());
  for (std::size_t i = 0; i < rollouts.all.size(); ++i) {
    const Rollout& r = rollouts.all[i];
    const double T = double(r.length()), g = weight_of(rules, r, double(rollouts.all.size()), tokens);
    double mean = 0, shared = 0;
    for (std::size_t t = 0; t < x[i].size(); ++t) mean += (x[i][t] - r.old[t]) / T;
    std::vector<double> own;
    for (std::size_t t = 0; t < x[i].size(); ++t) {
      const PolicyClip& clip = rules.settings.clip;
      const bool sequence = rules.settings.ratio == PolicyRatio::sequence;
      const double rho = std::exp(sequence ? mean : x[i][t] - r.old[t]), a = advantages[i][t], w = corrections.empty() ? 1 : corrections[i][t];
      const double u = rho * a, v = std::min(std::max(rho, 1 - clip.low), 1 + clip.high) * a;
      double l = std::max(-u, -v), slope = u <= v ? -u : 0;
      p.clipped_low += rho < 1 - clip.low && a<0, p.clipped_high += rho> 1 + clip.high && a > 0;
      if (a < 0 && clip.dual > 0 && l > -clip.dual * a) l = -clip.dual * a, slope = 0;
      const double d = r.reference[t] - x[i][t];
      const double k = rules.settings.kl == KlEstimator::k2 ? d * d / 2 : std::exp(d) - d - 1,
                   dk = rules.settings.kl == KlEstimator::k2 ? -d : 1 - std::exp(d);
      p.loss += g * (w * l + rules.kl * k);
      shared += g * w * slope / T;
      own.push_back(g * ((sequence ? 0 : w * slope) + rules.kl * dk));
    }
    for (const double c : own) p.slopes.push_back(c + (rules.settings.ratio == PolicyRatio::sequence ? shared : 0));
  }
  return p;
}

std::vector<std::vector<double>> updated(const Rollouts& r) {
  std::vector<std::vector<double>> x(r.all.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    for (Index t = 0; t < r.all[i].length(); ++t) x[i].push_back(new_log_prob(Index(i), t));
  return x;
}

PolicyClip clip(double low, double high, double dual = 0) { return {low, high, dual}; }

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.at(i), expected[i], 1e-11) << i;
}

// Values of TRL 1.16.0 for the same rollouts. They judge the plain loops that the other tests compare with.
TEST(policy_loss, plain_loops_give_the_published_losses) {
  const Rollouts r = six_rollouts();
  const auto x = updated(r), a = advantages_of(r, {});
  const PlainLoss grpo = plain_loss(r, a, x, {{.clip = clip(.2, .2), .kl = KlEstimator::k3}, LossAggregate::sequence, .04});
  expect_near({grpo.loss, grpo.clipped_low, grpo.clipped_high}, {0.006711331667, 1, 2});
  expect_near(grpo.slopes, {-0.031680961440, -0.037694020281, -0.045807426964, 0.000431969632});
  const auto centered = advantages_of(r, {PolicyAlgorithm::grpo, AdvantageScale::none});
  EXPECT_NEAR(plain_loss(r, centered, x, {{.clip = clip(.2, .2)}, LossAggregate::constant}).loss, 0.172657907341, 1e-11);
  const PlainLoss dapo = plain_loss(r, a, x, {{.clip = clip(.2, .28)}});
  expect_near({dapo.loss, dapo.clipped_low, dapo.clipped_high}, {0.092430228115, 1, 1});
  expect_near(dapo.slopes, {-0.043568828627, -0.053215087455, -0.064997054594, 0});
  EXPECT_NEAR(plain_loss(r, a, x, {{.clip = clip(.2, .28, 1.2)}}).loss, 0.079539470242, 1e-11);
  const PlainLoss gspo = plain_loss(r, a, x, {{.ratio = PolicyRatio::sequence, .clip = clip(.05, .06)}, LossAggregate::sequence});
  EXPECT_NEAR(gspo.loss, 0.000883110119, 1e-11);
  expect_near({gspo.slopes[0], gspo.slopes[4], gspo.slopes[7], gspo.slopes[9], gspo.slopes[12], gspo.slopes[16]},
              {-0.041658335000, 0, 0, -0.032073163210, 0.051856731439, 0});
  std::vector<std::vector<double>> corrections(r.all.size());
  for (std::size_t i = 0; i < r.all.size(); ++i)
    for (std::size_t t = 0; t < r.all[i].old.size(); ++t) corrections[i].push_back(std::min(std::exp(r.all[i].old[t] - r.all[i].said[t]), 1.02));
  EXPECT_NEAR(plain_loss(r, a, x, {{.clip = clip(.2, .28)}}, corrections).loss, 0.093825608249, 1e-11);
}

// The rollouts of the published values, with weights of whole answers, of which those outside of [0.98, 1.05] count nowhere.
TEST(policy_loss, published_loss_with_corrected_answers) {
  const Rollouts r = six_rollouts();
  const CorrectionRules by_answer{CorrectionOf::sequence, .98, 1.05, OutsideLimits::mask},
      by_token{CorrectionOf::token, 0, 1.02, OutsideLimits::clip};
  const auto x = updated(r), advantages = advantages_of(r, {});
  Rollouts kept = r;
  std::vector<std::vector<double>> of_kept, log_probs, weights, of_tokens;
  kept.all.clear();
  for (std::size_t i = 0; i < r.all.size(); ++i) {
    const std::vector<double> w = corrections_of(r.all[i], by_answer);
    of_tokens.push_back(corrections_of(r.all[i], by_token));
    if (w.front() > 0) kept.all.push_back(r.all[i]), of_kept.push_back(advantages[i]), log_probs.push_back(x[i]), weights.push_back(w);
  }
  EXPECT_NEAR(plain_loss(kept, of_kept, log_probs, {{.clip = clip(.2, .28)}}, weights).loss, 0.239244672996, 1e-11);
  EXPECT_NEAR(plain_loss(r, advantages, x, {{.clip = clip(.2, .28)}}, of_tokens).loss, 0.093825608249, 1e-11);
}

// Answers to drawn prompts, a model and the windows that it trains on.
struct Drawn {
  Rollouts rollouts;
  PolicyConfig policy;
  std::vector<std::vector<double>> advantages;
  PackedMinibatch minibatch;
  ModelConfig model = named("T2").model;
  Index seq_length;

  explicit Drawn(std::mt19937& random, const char* pattern = "PM*-") : rollouts(drawn_rollouts(random)), seq_length(12 + Index(random() % 12)) {
    policy.loss.ratio = PolicyRatio(random() % 2), policy.aggregate = LossAggregate(random() % 3), policy.max_new_tokens = 7;
    policy.loss.clip = {0.1 + double(random() % 3) / 10, 0.1 + double(random() % 3) / 10, random() % 2 ? 0 : 1.5};
    policy.loss.kl = KlEstimator(random() % 3), policy.kl_in_loss = policy.loss.kl == KlEstimator::none ? 0 : 0.3;
    policy.entropy_coefficient = random() % 2 ? 0 : 0.2, policy.loss.entropy_bonus = policy.entropy_coefficient > 0;
    policy.loss.temperature = random() % 2 ? 1 : 1.4;
    policy.cut = CutAnswers(random() % 2);
    model.pattern = pattern, model.objective = gyr::policy(policy.loss);
    advantages = advantages_of(rollouts, {PolicyAlgorithm::reinforce});
    std::vector<Index> members;
    for (std::size_t i = 0; i < rollouts.all.size(); ++i) members.push_back(Index(i));
    minibatch = packed(rollouts, members, seq_length);
  }
  MicroBatch batch() const {
    const Targets targets{advantages};
    const MinibatchValues values(rollouts, targets, minibatch, policy);
    return micro_batch_of([&](Index w) { return values.sample(w); }, model, 0, minibatch.size() + 1, seq_length);
  }
  EngineConfig config() const {
    EngineConfig c;
    c.model = model, c.micro_batch_size = minibatch.size() + 1, c.seq_length = seq_length;
    return c;
  }
  // Log-probabilities of the answers under the engine's weights, and old ones near them, so that some ratios are clipped and some are not.
  std::vector<std::vector<double>> score(Engine& engine, std::mt19937& random) {
    const MicroBatch b = batch();
    const Scores scores = engine.scores([&](int) { return b; }, 1);
    std::vector<std::vector<double>> x(rollouts.all.size());
    for (Index w = 0; w < minibatch.size(); ++w)
      visit_answer_rows(rollouts, minibatch.windows[std::size_t(w)], [&](Index i, Index t, Index row) {
        const double value = -scores.at(0).rows.at(std::size_t(w * seq_length + row)).loss;
        x[std::size_t(i)].push_back(value);
        rollouts.all[std::size_t(i)].old[std::size_t(t)] = value + (double(random() % 1000) / 1000 - 0.5);
        rollouts.all[std::size_t(i)].reference[std::size_t(t)] = value + (double(random() % 1000) / 1000 - 0.5);
      });
    return x;
  }
};

// Loss, gradient norm and means of two steps on the same answers.
void expect_same_step(const StepResult& a, const StepResult& b) {
  EXPECT_NEAR(a.loss, b.loss, 1e-12);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * std::max(1.0, b.gradient_norm));
  ASSERT_EQ(a.ahead_losses.size(), b.ahead_losses.size());
  for (std::size_t i = 0; i < a.ahead_losses.size(); ++i) {
    ASSERT_EQ(a.ahead_losses[i].has_value(), b.ahead_losses[i].has_value()) << "figure " << i;
    if (a.ahead_losses[i]) {
      EXPECT_NEAR(*a.ahead_losses[i], *b.ahead_losses[i], 1e-11) << "figure " << i;
    }
  }
}

TEST(policy_loss, head_matches_plain_loops_with_masked_answers) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 24; ++draw) {
    Drawn d(random);
    d.policy.entropy_coefficient = 0;
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    auto x = d.score(rig.engine, random);
    const MicroBatch b = d.batch();
    const StepResult result = rig.engine.gradients([&](int) { return b; }, 1, 1);
    Rollouts counted = d.rollouts;
    std::vector<std::vector<double>> advantages, kept;
    counted.all.clear();
    for (std::size_t i = 0; i < d.rollouts.all.size(); ++i)
      if (d.rollouts.all[i].ended() || d.policy.cut == CutAnswers::keep)
        counted.all.push_back(d.rollouts.all[i]), advantages.push_back(d.advantages[i]), kept.push_back(x[i]);
    const PlainLoss expected =
        plain_loss(counted, advantages, kept, {d.policy.loss, d.policy.aggregate, d.policy.kl_in_loss, d.policy.max_new_tokens});
    EXPECT_NEAR(result.loss, expected.loss, 1e-11) << "draw " << draw;
    if (counted.all.empty()) continue;
    ASSERT_EQ(Index(result.ahead_losses.size()), policy_figures);
    if (d.policy.loss.ratio == PolicyRatio::sequence) continue;
    double tokens = 0;
    for (const Rollout& r : counted.all) tokens += double(r.length());
    EXPECT_NEAR(*result.ahead_losses[std::size_t(PolicyFigure::clipped_low)], expected.clipped_low / tokens, 1e-12);
    EXPECT_NEAR(*result.ahead_losses[std::size_t(PolicyFigure::clipped_high)], expected.clipped_high / tokens, 1e-12);
  }
}

// Masked tokens count nowhere; the other weights multiply the loss of their token.
TEST(policy_loss, corrections_weight_the_tokens) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 12; ++draw) {
    Drawn d(random);
    d.policy.loss = {}, d.policy.kl_in_loss = 0, d.policy.entropy_coefficient = 0, d.policy.cut = CutAnswers::keep,
    d.model.objective = gyr::policy({});
    d.policy.correction = {CorrectionOf(1 + random() % 2), 0.5, 1.6, OutsideLimits(random() % 2)};
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    const auto x = d.score(rig.engine, random);
    for (Rollout& r : d.rollouts.all)
      for (std::size_t t = 0; t < r.said.size(); ++t) r.said[t] = r.old[t] + (double(random() % 1000) / 1000 - 0.5);
    double tokens = 0, answers = 0, loss = 0;
    std::vector<std::vector<double>> w;
    for (const Rollout& r : d.rollouts.all) {
      w.push_back(corrections_of(r, d.policy.correction));
      const double kept = double(std::count_if(w.back().begin(), w.back().end(), [](double one) { return one > 0; }));
      tokens += kept, answers += kept > 0;
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double T = double(std::count_if(w[i].begin(), w[i].end(), [](double one) { return one > 0; }));
      for (std::size_t t = 0; t < w[i].size(); ++t) {
        if (w[i][t] == 0) continue;
        const double rho = std::exp(x[i][t] - d.rollouts.all[i].old[t]), a = d.advantages[i][t];
        const double g = d.policy.aggregate == LossAggregate::token      ? 1 / tokens
                         : d.policy.aggregate == LossAggregate::sequence ? 1 / (answers * T)
                                                                         : 1 / (answers * double(d.policy.max_new_tokens));
        loss += g * w[i][t] * std::max(-rho * a, -std::min(std::max(rho, 0.8), 1.2) * a);
      }
    }
    const MicroBatch b = d.batch();
    EXPECT_NEAR(rig.engine.gradients([&](int) { return b; }, 1, 1).loss, loss, 1e-11) << "draw " << draw;
  }
}

TEST(policy_loss, gradients_match_finite_differences) {
  std::mt19937 random(seed_of_run());
  for (const char* pattern : {"P", "M-", "*-*-", "LE"})
    for (int draw = 0; draw < 3; ++draw) {
      Drawn d(random, pattern);
      SCOPED_TRACE(fmt::format("{}, draw {}", pattern, draw));
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

TEST(policy_loss, packing_changes_nothing) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 8; ++draw) {
    Drawn d(random);
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    d.score(rig.engine, random);
    const MicroBatch b = d.batch();
    const StepResult packed_windows = rig.engine.gradients([&](int) { return b; }, 1, 1);
    Drawn alone = d;
    alone.minibatch.windows.clear();
    for (std::size_t i = 0; i < d.rollouts.all.size(); ++i) alone.minibatch.windows.push_back({Index(i)});
    Rig<double> other(alone.config(), single_rank_grid(d.model.layers()));
    set_weights(other.engine);
    const MicroBatch one_each = alone.batch();
    const StepResult single = other.engine.gradients([&](int) { return one_each; }, 1, 1);
    EXPECT_NEAR(packed_windows.loss, single.loss, 1e-12);
    EXPECT_NEAR(packed_windows.gradient_norm, single.gradient_norm, 1e-11 * std::max(1.0, single.gradient_norm));
  }
}

TEST(policy_loss, micro_batch_size_changes_nothing) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 8; ++draw) {
    Drawn d(random);
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    d.score(rig.engine, random);
    const MicroBatch b = d.batch();
    const StepResult together = rig.engine.gradients([&](int) { return b; }, 1, 1);
    EngineConfig config = d.config();
    config.micro_batch_size = 1 + Index(random() % std::uint64_t(d.minibatch.size()));
    const Index micros = d.minibatch.size() / config.micro_batch_size + 1;  // the last windows may be empty
    Rig<double> other(config, single_rank_grid(d.model.layers()));
    set_weights(other.engine);
    const Targets targets{d.advantages};
    const MinibatchValues values(d.rollouts, targets, d.minibatch, d.policy);
    const StepResult parts = other.engine.gradients(
        [&](int micro) {
          return micro_batch_of([&](Index w) { return values.sample(w); }, d.model, micro * config.micro_batch_size, config.micro_batch_size,
                                d.seq_length);
        },
        int(micros), 1);
    SCOPED_TRACE(fmt::format("draw {}, {} windows, {} together", draw, d.minibatch.size(), config.micro_batch_size));
    expect_same_step(parts, together);
  }
}

// Answers without a reward, truncated ones that are masked, and those outside of the limits of a correction count nowhere: the others learn
// as if the excluded ones had never been generated.
TEST(policy_loss, excluded_answers_change_nothing_else) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 24; ++draw) {
    Drawn d(random);
    d.policy.cut = CutAnswers::keep;
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    d.score(rig.engine, random);
    std::vector<bool> excluded;
    for (Rollout& r : d.rollouts.all) excluded.push_back(random() % 3 == 0), r.said = r.old;
    excluded.front() = true, excluded.back() = false;
    for (std::size_t i = 0; i < excluded.size(); ++i) {
      Rollout& r = d.rollouts.all[i];
      if (draw % 3 == 0 && excluded[i]) r.reward.reset();
      if (draw % 3 == 1) r.end = excluded[i] ? TextEnd::length : TextEnd::end;
      if (draw % 3 == 2 && excluded[i]) r.said[0] -= 3;
    }
    if (draw % 3 == 1) d.policy.cut = CutAnswers::mask;
    if (draw % 3 == 2) d.policy.correction = {CorrectionOf::sequence, 0.5, 2, OutsideLimits::mask};
    Drawn rest = d;
    rest.rollouts.all.clear(), rest.advantages.clear();
    std::vector<Index> members;
    for (std::size_t i = 0; i < excluded.size(); ++i) {
      if (excluded[i]) continue;
      members.push_back(Index(members.size()));
      rest.rollouts.all.push_back(d.rollouts.all[i]), rest.advantages.push_back(d.advantages[i]);
    }
    rest.minibatch = packed(rest.rollouts, members, rest.seq_length);
    Rig<double> other(rest.config(), single_rank_grid(d.model.layers()));
    set_weights(other.engine);
    const MicroBatch all = d.batch(), some = rest.batch();
    SCOPED_TRACE(fmt::format("draw {}, {} of {} answers count", draw, members.size(), excluded.size()));
    expect_same_step(rig.engine.gradients([&](int) { return all; }, 1, 1), other.engine.gradients([&](int) { return some; }, 1, 1));
  }
}

TEST(policy_loss, temperature_divides_the_logits) {
  std::mt19937 random(seed_of_run());
  Drawn d(random);
  d.model.tie_word_embeddings = false;
  const auto scores = [&](double temperature, double factor) {
    d.policy.loss.temperature = temperature;
    d.model.objective = gyr::policy(d.policy.loss);
    Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
    set_weights(rig.engine);
    for (const auto& p : rig.engine.stage().parameters().all())
      if (p->weight.name == "lm_head.weight")
        for (Index i = 0; i < p->size(); ++i) p->vector<double>()(i) *= factor;
    const MicroBatch b = d.batch();
    return rig.engine.scores([&](int) { return b; }, 1).at(0).rows;
  };
  const std::vector<RowScore> tempered = scores(2.5, 1), scaled = scores(1, 1 / 2.5), plain = scores(1, 1);
  double distance = 0;
  for (std::size_t r = 0; r < tempered.size(); ++r) {
    EXPECT_NEAR(tempered[r].loss, scaled[r].loss, 1e-12);
    distance += std::abs(tempered[r].loss - plain[r].loss);
  }
  EXPECT_GT(distance, 1e-3);
}

TEST(policy_loss, unchanged_policy_has_ratio_one) {
  std::mt19937 random(seed_of_run());
  Drawn d(random);
  d.policy.loss.old_of_step = true, d.policy.loss.kl = KlEstimator::none, d.policy.kl_in_loss = 0, d.policy.cut = CutAnswers::keep;
  d.model.objective = gyr::policy(d.policy.loss);
  Rig<double> rig(d.config(), single_rank_grid(d.model.layers()));
  set_weights(rig.engine);
  const MicroBatch b = d.batch();
  const StepResult result = rig.engine.gradients([&](int) { return b; }, 1, 1);
  EXPECT_NEAR(*result.ahead_losses[std::size_t(PolicyFigure::ratio)], 1, 1e-15);
  EXPECT_EQ(*result.ahead_losses[std::size_t(PolicyFigure::clipped_low)], 0);
  EXPECT_EQ(*result.ahead_losses[std::size_t(PolicyFigure::k3_old)], 0);
}

}  // namespace
}  // namespace gyr::testing::policy_loss_suite
