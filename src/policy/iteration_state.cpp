// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/iteration_state.hpp"

#include <algorithm>

namespace gyr {

namespace {

double coefficient_of(const PolicyConfig& c) { return c.kl_in_loss > 0 ? c.kl_in_loss : c.advantage.kl_coefficient; }

// Mean divergence of an answer from the reference.
double divergence(const Rollouts& rollouts) {
  double sum = 0;
  for (const Rollout& r : rollouts.all) {
    const std::vector<double>& policy = r.old.empty() ? r.said : r.old;
    for (std::size_t t = 0; t < r.reference.size(); ++t) sum += policy[t] - r.reference[t];
  }
  return rollouts.all.empty() ? 0 : sum / double(rollouts.all.size());
}

}  // namespace

IterationState first_state(const PolicyConfig& c) { return {0, coefficient_of(c)}; }

IterationState state_after(const Rollouts& rollouts, const PolicyConfig& c) {
  IterationState next{rollouts.next_prompt, rollouts.kl_coefficient};
  if (c.kl_target == 0) return next;
  const double error = std::clamp(divergence(rollouts) / c.kl_target - 1, -0.2, 0.2);
  next.kl_coefficient *= 1 + error * double(rollouts.all.size()) / c.kl_horizon;
  return next;
}

bool hands_on_state(const PolicyConfig& c) { return c.waves > 1 || c.kl_target > 0; }

PolicyConfig settings_in(const IterationState& state, PolicyConfig c) {
  if (c.kl_in_loss > 0) c.kl_in_loss = state.kl_coefficient;
  if (c.advantage.kl != RewardKl::none) c.advantage.kl_coefficient = state.kl_coefficient;
  return c;
}

Rollouts with_spread(const Rollouts& drawn, const Rollouts& more, Index groups) {
  std::vector<std::pair<const Rollouts*, Index>> spread, equal;
  for (const Rollouts* const part : {&drawn, &more}) {
    const std::vector<bool> equals = groups_without_spread(*part);
    for (Index g = 0; g < part->groups(); ++g) (equals[std::size_t(g)] ? equal : spread).emplace_back(part, g);
  }
  std::vector<std::pair<const Rollouts*, Index>> chosen(spread.begin(), spread.begin() + std::min<Index>(groups, Index(spread.size())));
  for (const auto& group : equal)
    if (Index(chosen.size()) < groups) chosen.push_back(group);
  const auto first = [](const auto& group) { return group.first->all[std::size_t(group.second * group.first->group)].prompt; };
  std::sort(chosen.begin(), chosen.end(), [&](const auto& a, const auto& b) { return first(a) < first(b); });
  Rollouts all = more;
  all.all.clear();
  for (const auto& [part, g] : chosen)
    for (Index j = 0; j < part->group; ++j) all.all.push_back(part->all[std::size_t(g * part->group + j)]);
  return all;
}

double length_penalty(Index tokens, const PolicyConfig& c) {
  if (c.cut != CutAnswers::soft) return 0;
  return std::min(1.0, double(std::max<Index>(0, tokens - (c.max_new_tokens - c.buffer))) / double(c.buffer));
}

}  // namespace gyr
