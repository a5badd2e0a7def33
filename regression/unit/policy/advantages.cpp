// SPDX-License-Identifier: BSD-3-Clause
// Advantages of rollouts against published values, and their invariances on drawn rollouts.
#include "src/policy/advantages.hpp"

#include <cmath>
#include <random>

#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::advantages_suite {
namespace {

std::vector<double> of_answers(const Rollouts& r, const AdvantageRules& rules) {
  std::vector<double> first;
  for (const auto& of_tokens : advantages_of(r, rules)) first.push_back(of_tokens.front());
  return first;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-11) << i;
}

// Values of TRL 1.16.0 and verl 0.9.1 for the same rollouts.
TEST(advantages, published_values_of_each_algorithm_are_reproduced) {
  const Rollouts r = six_rollouts();
  using enum PolicyAlgorithm;
  expect_near(of_answers(r, {grpo}), {.999800039992, -.999800039992, 0, .577316937781, -1.154633875561, .577316937781});
  expect_near(of_answers(r, {grpo, AdvantageScale::none}), {.5, -.5, 0, 1, -2, 1});
  const std::vector<double> batch = of_answers(r, {grpo, AdvantageScale::batch});
  expect_near({batch[0], batch[3], batch[4]}, {.426365072176, .852730144351, -1.705460288703});
  expect_near(of_answers(r, {rloo}), {.75, -.75, 0, 1.5, -3, 1.5});
  expect_near(of_answers(r, {reinforce_baseline}),
              {0.615713607781, -0.256547336576, 0.179583135603, 1.051844079960, -1.564938753111, 1.051844079960});
}

TEST(advantages, rewards_to_go_subtract_the_divergence) {
  const AdvantageRules rules{PolicyAlgorithm::reinforce, AdvantageScale::group, RewardKl::k1, 0.1};
  Rollouts r = six_rollouts();
  r.all[2].reward = 0;  // the published values leave out the reward of a cut answer
  expect_near(advantages_of(r, rules)[0], {0.467340279523, 0.458428574810, 0.467340279523, 0.471796131879});
}

const AdvantageRules ppo_rules{PolicyAlgorithm::ppo, AdvantageScale::group, RewardKl::k1, 0.1, 0.98, 0.9, CutReward::bootstrap};

// Values of TRL 1.8.0 and verl 0.9.1.
TEST(advantages, ppo_matches_published_values) {
  const Rollouts r = six_rollouts();
  const auto advantages = advantages_of(r, ppo_rules), returns = returns_of(r, ppo_rules);
  expect_near(advantages[0], {0.587336551592, 0.119271944312, 0.771170202626, 0.342384521008});
  const std::vector<double> estimated{1.083692258400, 0.541601200000, 1.296600000000, 0.8};
  for (std::size_t t = 0; t < 4; ++t) EXPECT_NEAR(returns[0][t] - r.all[0].values[t], estimated[t], 1e-11);
  expect_near(returns[2], {0.339964, 0.402});  // a cut answer, which continues with the critic's value
}

// With gamma = lambda = 1, the return of a token is the sum of the rewards from it on.
TEST(advantages, ppo_without_discount_returns_later_rewards) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 40; ++draw) {
    const Rollouts r = drawn_rollouts(random);
    const auto returns = returns_of(r, {PolicyAlgorithm::ppo, AdvantageScale::group, RewardKl::k2, 0.3, 1, 1, CutReward::score});
    for (std::size_t i = 0; i < r.all.size(); ++i) {
      double sum = *r.all[i].reward;
      for (std::size_t t = returns[i].size(); t-- > 0;) {
        const double d = r.all[i].reference[t] - r.all[i].old[t];
        sum -= 0.3 * d * d / 2;
        EXPECT_NEAR(returns[i][t], sum, 1e-11);
      }
    }
  }
}

TEST(advantages, divergence_estimators_match_published_means) {
  const Rollouts r = six_rollouts();
  double k1 = 0, k2 = 0, k3 = 0, old = 0, n = 0;
  for (std::size_t i = 0; i < r.all.size(); ++i)
    for (std::size_t t = 0; t < r.all[i].old.size(); ++t, n += 1) {
      const double x = new_log_prob(Index(i), Index(t)), f = r.all[i].reference[t];
      k1 += kl_of(RewardKl::k1, x, f), k2 += kl_of(RewardKl::k2, x, f), k3 += kl_of(RewardKl::k3, x, f);
      old += kl_of(RewardKl::k1, r.all[i].old[t], f);
    }
  expect_near({k1 / n, k2 / n, k3 / n, old / n}, {0.017647058824, 0.0225, 0.022701006725, -0.005882352941});
}

TEST(advantages, constant_added_to_a_group_changes_nothing) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 40; ++draw) {
    Rollouts r = drawn_rollouts(random), shifted = r;
    for (Index g = 0; g < r.groups(); ++g) {
      const double constant = double(random() % 9) - 4;
      for (Index j = 0; j < r.group; ++j) {
        auto& reward = shifted.all[std::size_t(g * r.group + j)].reward;
        if (reward) *reward += constant;
      }
    }
    for (const PolicyAlgorithm a : {PolicyAlgorithm::grpo, PolicyAlgorithm::rloo, PolicyAlgorithm::reinforce_baseline}) {
      const auto before = advantages_of(r, {a}), after = advantages_of(shifted, {a});
      for (std::size_t i = 0; i < before.size(); ++i)
        for (std::size_t t = 0; t < before[i].size(); ++t) EXPECT_NEAR(before[i][t], after[i][t], 1e-9);
    }
  }
}

TEST(advantages, answers_without_reward_leave_all_statistics) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 40; ++draw) {
    Rollouts r = drawn_rollouts(random);
    const auto missing = std::size_t(random() % r.all.size());
    r.all[missing].reward.reset();
    Rollouts other = r;
    other.all[missing].tokens.resize(other.all[missing].tokens.size() + 3), other.all[missing].old.resize(other.all[missing].old.size() + 3);
    other.all[missing].reference.resize(other.all[missing].reference.size() + 3);
    other.all[missing].values.resize(other.all[missing].values.size() + 3);
    using enum PolicyAlgorithm;
    for (const PolicyAlgorithm a : {grpo, rloo, reinforce, reinforce_baseline, ppo}) {
      const auto with = advantages_of(r, {a}), without = advantages_of(other, {a});
      for (std::size_t i = 0; i < with.size(); ++i) {
        if (i == missing)
          for (const double x : with[i]) EXPECT_EQ(x, 0);
        else EXPECT_EQ(with[i], without[i]);
      }
    }
  }
}

TEST(advantages, groups_of_equal_rewards_are_found) {
  Rollouts r = six_rollouts();
  EXPECT_EQ(groups_without_spread(r), (std::vector<bool>{false, false}));
  for (std::size_t i = 0; i < 3; ++i) r.all[i].reward = 0.25;
  r.all[4].reward.reset();
  EXPECT_EQ(groups_without_spread(r), (std::vector<bool>{true, true}));
}

}  // namespace
}  // namespace gyr::testing::advantages_suite
