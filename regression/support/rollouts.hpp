// SPDX-License-Identifier: BSD-3-Clause
// Rollouts for tests: six with published advantages and losses, and random ones.
#pragma once

#include <random>

#include "src/policy/rollout.hpp"

namespace gyr::testing {

// Log-probabilities of token t of rollout s: before the update, and after it.
inline double old_log_prob(Index s, Index t) { return -(1 + double((7 * s + 3 * t) % 5) / 4); }
inline double new_log_prob(Index s, Index t) { return old_log_prob(s, t) + 0.1 * double((5 * s + 2 * t) % 7 - 3); }

// Values of a critic before token t of rollout s, before the update and after it.
inline double old_value(Index s, Index t) { return 0.2 * double((2 * s + 3 * t) % 6 - 2); }
inline double new_value(Index s, Index t) { return old_value(s, t) + 0.15 * double((s + t) % 5 - 2); }

// Two groups of three answers with 4 3 2 3 4 1 tokens and rewards 1 0 0.5 2 -1 2. All ended but the third one.
inline Rollouts six_rollouts() {
  const Index lengths[] = {4, 3, 2, 3, 4, 1};
  const double rewards[] = {1, 0, .5, 2, -1, 2};
  Rollouts r{.group = 3};
  for (Index s = 0; s < 6; ++s) {
    Rollout& x =
        r.all.emplace_back(Rollout{.prompt = s / 3, .sample = s % 3, .tokens = std::vector<Token>(std::size_t(2 + lengths[s]), 1), .begin = 2});
    x.end = s == 2 ? TextEnd::length : TextEnd::end, x.reward = rewards[s];
    for (Index t = 0; t < lengths[s]; ++t) {
      x.old.push_back(old_log_prob(s, t));
      x.said.push_back(x.old.back() + 0.02 * (double((s + 3 * t) % 4) - 1.5));
      x.reference.push_back(x.old.back() - 0.05 * (double((3 * s + 4 * t) % 5) - 2));
    }
    for (Index t = 0; t <= lengths[s]; ++t) x.values.push_back(old_value(s, t));
  }
  return r;
}

// 1 to 4 groups of 2 to 5 answers with 1 to 6 tokens each, after prompts of 1 to 3 tokens.
inline Rollouts drawn_rollouts(std::mt19937& random) {
  Rollouts r{.iteration = Index(random() % 100), .version = Index(random() % 100), .group = 2 + Index(random() % 4)};
  const Index groups = 1 + Index(random() % 4);
  const auto number = [&] { return double(random() % 4001) / 1000 - 2; };
  r.reward_names = {"one"};
  for (Index i = 0; i < groups * r.group; ++i) {
    Rollout& x = r.all.emplace_back(Rollout{.prompt = 7 + i / r.group, .sample = i % r.group, .begin = 1 + Index(random() % 3)});
    const Index length = 1 + Index(random() % 6);
    for (Index t = 0; t < x.begin + length; ++t) x.tokens.push_back(Token(random() % 11));
    x.end = random() % 3 == 0 ? TextEnd::length : TextEnd::end;
    x.reward = number(), x.rewards = {x.reward};
    for (Index t = 0; t < length; ++t) x.said.push_back(number()), x.old.push_back(number()), x.reference.push_back(number());
    for (Index t = 0; t <= length; ++t) x.values.push_back(number());
  }
  return r;
}

}  // namespace gyr::testing
