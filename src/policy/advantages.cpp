// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/advantages.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Mean and unbiased variance of some values, in two passes.
struct Spread {
  double mean = 0, variance = 0;
};
Spread spread_of(const std::vector<double>& values) {
  Spread s;
  if (values.empty()) return s;
  for (const double x : values) s.mean += x;
  s.mean /= double(values.size());
  for (const double x : values) s.variance += (x - s.mean) * (x - s.mean);
  s.variance = values.size() > 1 ? s.variance / double(values.size() - 1) : 0;
  return s;
}

// Reward of a rollout, less the divergences of its tokens.
double penalised(const Rollout& r, const AdvantageRules& rules) {
  double penalty = 0;
  if (rules.kl != RewardKl::none)
    for (std::size_t t = 0; t < r.old.size(); ++t) penalty += kl_of(rules.kl, r.old[t], r.reference[t]);
  return *r.reward - rules.kl_coefficient * penalty;
}

// Rewards of the rollouts that have one, in order.
std::vector<double> rewards_of(const std::vector<const Rollout*>& rollouts, const AdvantageRules& rules) {
  std::vector<double> rewards;
  for (const Rollout* r : rollouts)
    if (r->reward) rewards.push_back(penalised(*r, rules));
  return rewards;
}

double of_group(const std::vector<double>& group, double reward, double batch_deviation, const AdvantageRules& rules) {
  const Spread spread = spread_of(group);
  const double n = double(group.size()), centered = reward - spread.mean;
  if (rules.algorithm == PolicyAlgorithm::rloo) return n > 1 ? centered * n / (n - 1) : 0;
  if (rules.algorithm == PolicyAlgorithm::reinforce_baseline || rules.scale == AdvantageScale::none) return centered;
  return centered / ((rules.scale == AdvantageScale::group ? std::sqrt(spread.variance) : batch_deviation) + 1e-4);
}

// REINFORCE++: the reward of a token is its divergence, and at the last token also the reward of the answer.
std::vector<double> rewards_to_go(const Rollout& r, const AdvantageRules& rules) {
  std::vector<double> all(std::size_t(r.length()));
  double sum = *r.reward;
  for (std::size_t t = all.size(); t-- > 0;) {
    if (rules.kl != RewardKl::none) sum -= rules.kl_coefficient * kl_of(rules.kl, r.old[t], r.reference[t]);
    all[t] = sum;
  }
  return all;
}

// GAE of the answer tokens.
std::vector<double> estimated(const Rollout& r, const AdvantageRules& rules) {
  const auto length = std::size_t(r.length());
  ensure(r.values.size() == length + 1, "{} values do not fit {} answer tokens", r.values.size(), length);
  const bool continues = !r.ended() && rules.cut == CutReward::bootstrap;
  std::vector<double> all(length);
  double next = 0, value = continues ? r.values.back() : 0;
  for (std::size_t t = length; t-- > 0;) {
    double reward = t + 1 == length && !continues ? *r.reward : 0;
    if (rules.kl != RewardKl::none) reward -= rules.kl_coefficient * kl_of(rules.kl, r.old[t], r.reference[t]);
    next = reward + rules.gamma * value - r.values[t] + rules.gamma * rules.lambda * next;
    all[t] = next, value = r.values[t];
  }
  return all;
}

void whiten(const Rollouts& rollouts, std::vector<std::vector<double>>& advantages) {
  std::vector<double> all;
  for (std::size_t i = 0; i < advantages.size(); ++i)
    if (rollouts.all[i].reward) all.insert(all.end(), advantages[i].begin(), advantages[i].end());
  const Spread spread = spread_of(all);
  for (std::size_t i = 0; i < advantages.size(); ++i)
    if (rollouts.all[i].reward)
      for (double& a : advantages[i]) a = (a - spread.mean) / std::sqrt(spread.variance + 1e-8);
}

std::vector<const Rollout*> members(const Rollouts& rollouts, Index group) {
  std::vector<const Rollout*> all;
  for (Index j = 0; j < rollouts.group; ++j) all.push_back(&rollouts.all[std::size_t(group * rollouts.group + j)]);
  return all;
}

}  // namespace

double kl_of(RewardKl k, double actual, double target) {
  const double d = target - actual;
  if (k == RewardKl::k1) return -d;
  return k == RewardKl::k2 ? d * d / 2 : k == RewardKl::k3 ? std::exp(std::clamp(d, -20.0, 20.0)) - d - 1 : 0;
}

std::vector<std::vector<double>> advantages_of(const Rollouts& rollouts, const AdvantageRules& rules) {
  std::vector<const Rollout*> batch;
  for (const Rollout& r : rollouts.all) batch.push_back(&r);
  const double batch_deviation = std::sqrt(spread_of(rewards_of(batch, rules)).variance);
  std::vector<std::vector<double>> advantages;
  for (Index g = 0; g < rollouts.groups(); ++g) {
    const std::vector<const Rollout*> group = members(rollouts, g);
    const std::vector<double> rewards = rewards_of(group, rules);
    for (const Rollout* r : group) {
      if (!r->reward) advantages.emplace_back(std::size_t(r->length()), 0.0);
      else if (rules.algorithm == PolicyAlgorithm::ppo) advantages.push_back(estimated(*r, rules));
      else if (rules.algorithm == PolicyAlgorithm::reinforce) advantages.push_back(rewards_to_go(*r, rules));
      else advantages.emplace_back(std::size_t(r->length()), of_group(rewards, penalised(*r, rules), batch_deviation, rules));
    }
  }
  if (rules.algorithm != PolicyAlgorithm::grpo && rules.algorithm != PolicyAlgorithm::rloo) whiten(rollouts, advantages);
  return advantages;
}

std::vector<std::vector<double>> returns_of(const Rollouts& rollouts, const AdvantageRules& rules) {
  std::vector<std::vector<double>> returns;
  for (const Rollout& r : rollouts.all) {
    std::vector<double>& of_tokens = returns.emplace_back(std::size_t(r.length()), 0.0);
    if (!r.reward) continue;
    of_tokens = estimated(r, rules);
    for (std::size_t t = 0; t < of_tokens.size(); ++t) of_tokens[t] += r.values[t];
  }
  return returns;
}

std::vector<bool> groups_without_spread(const Rollouts& rollouts) {
  std::vector<bool> equal;
  for (Index g = 0; g < rollouts.groups(); ++g) {
    const std::vector<double> rewards = rewards_of(members(rollouts, g), {});
    equal.push_back(std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards.front(); }));
  }
  return equal;
}

}  // namespace gyr
