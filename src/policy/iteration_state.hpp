// SPDX-License-Identifier: BSD-3-Clause
// State that iterations of policy training hand on: the next prompt, and the adaptive coefficient of the KL divergence (Ziegler et al. 2019):
//   coefficient of the next iteration = coefficient (1 + clip(kl / target - 1, -0.2, 0.2) answers / horizon)
//   kl mean divergence of an answer from the reference model: sum of old - reference over its tokens
// The rollout file of an iteration has what the next one needs.
#pragma once

#include "src/policy/policy_config.hpp"
#include "src/policy/rollout.hpp"

namespace gyr {

struct IterationState {
  std::int64_t first_prompt = 0;
  double kl_coefficient = 0;
};

IterationState first_state(const PolicyConfig&);
IterationState state_after(const Rollouts&, const PolicyConfig&);
// True if an iteration cannot begin without the rollouts of the one before.
bool hands_on_state(const PolicyConfig&);
// Settings of an iteration: the coefficient of its divergence is that of the state.
PolicyConfig settings_in(const IterationState&, PolicyConfig);

// Keeps of `drawn`, then of `more`, the groups whose answers have different rewards, up to `groups` of them in this order. Groups with equal
// rewards fill up the rest, so that the result has min(groups, all) groups, in the order of prompts.
Rollouts with_spread(const Rollouts& drawn, const Rollouts& more, Index groups);

// Reward that an answer of this many tokens loses (CutAnswers::soft).
double length_penalty(Index tokens, const PolicyConfig&);

}  // namespace gyr
