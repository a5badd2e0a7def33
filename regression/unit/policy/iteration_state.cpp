// SPDX-License-Identifier: BSD-3-Clause
// State that iterations hand on: the adaptive KL coefficient, dynamic sampling, and the reward that long answers lose.
// Warnings about groups of answers with equal rewards, whose advantages are 0.
#include "src/policy/iteration_state.hpp"

#include <algorithm>
#include <random>

#include "regression/support/rollouts.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/policy/equal_rewards.hpp"

namespace gyr::testing::iteration_state_suite {
namespace {

// 256 answers of one token with this divergence from the reference.
double coefficient_after(double divergence) {
  PolicyConfig c;
  c.kl_target = 6, c.kl_horizon = 10000;
  Rollouts r{.next_prompt = 17, .kl_coefficient = 0.1};
  for (int i = 0; i < 256; ++i) r.all.push_back({.tokens = {1, 1}, .begin = 1, .old = {-1}, .reference = {-1 - divergence}});
  const IterationState next = state_after(r, c);
  EXPECT_EQ(next.first_prompt, 17);
  return next.kl_coefficient;
}

TEST(iteration_state, adaptive_coefficient_matches_published_values) {
  EXPECT_NEAR(coefficient_after(9), 0.100512, 1e-12);
  EXPECT_NEAR(coefficient_after(5.4), 0.099744, 1e-12);
}

TEST(iteration_state, coefficient_enters_loss_or_reward) {
  PolicyConfig c;
  c.kl_in_loss = 0.3;
  EXPECT_EQ(first_state(c).kl_coefficient, 0.3);
  EXPECT_EQ(settings_in({0, 0.7}, c).kl_in_loss, 0.7);
  PolicyConfig in_reward;
  in_reward.advantage.kl = RewardKl::k1, in_reward.advantage.kl_coefficient = 0.2;
  EXPECT_EQ(first_state(in_reward).kl_coefficient, 0.2);
  EXPECT_EQ(settings_in({0, 0.7}, in_reward).advantage.kl_coefficient, 0.7);
  EXPECT_EQ(settings_in({0, 0.7}, in_reward).kl_in_loss, 0);
}

// The prompts of the groups with different rewards, in order, then of those with equal ones.
std::vector<std::int64_t> expected_prompts(const std::vector<const Rollouts*>& parts, Index groups) {
  std::vector<std::int64_t> chosen;
  for (const bool equal : {false, true})
    for (const Rollouts* part : parts)
      for (Index g = 0; g < part->groups() && Index(chosen.size()) < groups; ++g) {
        const auto first = part->all.begin() + g * part->group;
        const bool same = std::all_of(first, first + part->group, [&](const Rollout& r) { return r.reward == first->reward; });
        if (same == equal) chosen.push_back(first->prompt);
      }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TEST(iteration_state, equal_groups_are_replaced_in_order) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 100; ++draw) {
    Rollouts a = drawn_rollouts(random), b = drawn_rollouts(random);
    b.group = a.group, b.next_prompt = 99;
    b.all.resize(b.all.size() / std::size_t(a.group) * std::size_t(a.group), b.all.front());
    for (Rollouts* part : {&a, &b})
      for (std::size_t i = 0; i < part->all.size(); ++i) {
        const Index g = Index(i) / part->group;
        part->all[i].prompt = g + (part == &b ? 100 : 0), part->all[i].sample = Index(i) % part->group;
        part->all[i].reward = random() % 2 ? double(random() % 2) : 1.0;
      }
    const Index groups = a.groups();
    const Rollouts kept = with_spread(a, b, groups);
    EXPECT_EQ(kept.next_prompt, 99);
    std::vector<std::int64_t> prompts;
    for (Index g = 0; g < kept.groups(); ++g) prompts.push_back(kept.all[std::size_t(g * kept.group)].prompt);
    EXPECT_EQ(prompts, expected_prompts({&a, &b}, groups)) << "draw " << draw;
    for (std::size_t i = 0; i < kept.all.size(); ++i) EXPECT_EQ(kept.all[i].sample, Index(i) % kept.group);
  }
}

TEST(iteration_state, long_answers_lose_reward_in_the_buffer) {
  PolicyConfig c;
  c.max_new_tokens = 100, c.buffer = 20;
  EXPECT_EQ(length_penalty(100, c), 0) << "only overlong: soft";
  c.cut = CutAnswers::soft;
  EXPECT_EQ(length_penalty(80, c), 0);
  EXPECT_EQ(length_penalty(85, c), 0.25);
  EXPECT_EQ(length_penalty(100, c), 1);
}

// Iterations in which warnings are due, counted from 0, for these fractions of groups with equal rewards.
std::vector<Index> warned(PolicyAlgorithm algorithm, const std::vector<double>& equal, Index first = 0) {
  PolicyConfig c;
  c.advantage.algorithm = algorithm;
  EqualRewards rewards(c);
  std::vector<Index> iterations;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    const IterationReport report{
        .iteration = first + Index(i), .prompts = 8, .answers = 32, .equal_groups = equal[i], .advantage_deviation = equal[i] == 1 ? 0.0 : 1.0};
    if (!rewards.warning(report).empty()) iterations.push_back(report.iteration);
  }
  return iterations;
}

using Iterations = std::vector<Index>;

TEST(iteration_state, first_iterations_without_gradient_are_reported_once) {
  using enum PolicyAlgorithm;
  const std::vector<double> nearly(30, 0.95), several(30, 0.85), all(30, 1.0);
  for (const PolicyAlgorithm by_group : {grpo, rloo, reinforce_baseline}) {
    EXPECT_EQ(warned(by_group, nearly), Iterations{4});
    EXPECT_EQ(warned(by_group, several), Iterations{});
    EXPECT_EQ(warned(by_group, all), Iterations{4});
    EXPECT_EQ(warned(by_group, {1, 1, 1, 1, 0.6, 0.2, 0, 0, 0, 0, 0, 0}), Iterations{4});
    EXPECT_EQ(warned(by_group, {0, 1, 1, 1, 1, 0.9, 0.9, 0.9}), Iterations{});
    EXPECT_EQ(warned(by_group, nearly, 40), Iterations{}) << "a resumed run is not at its begin";
  }
  for (const PolicyAlgorithm by_batch : {reinforce, ppo}) EXPECT_EQ(warned(by_batch, nearly), Iterations{}) << "the batch has a baseline";
}

TEST(iteration_state, iterations_without_advantages_are_reported_once) {
  std::vector<double> equal{0.5};
  equal.resize(31, 1.0);
  for (const PolicyAlgorithm algorithm : {PolicyAlgorithm::grpo, PolicyAlgorithm::ppo}) {
    EXPECT_EQ(warned(algorithm, equal, 100), Iterations{110});
    EXPECT_EQ(warned(algorithm, {1, 1, 1, 1, 1, 1, 1, 1, 1, 0.5, 1, 1}, 100), Iterations{});
  }
}

}  // namespace
}  // namespace gyr::testing::iteration_state_suite
