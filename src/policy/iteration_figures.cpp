// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/iteration_figures.hpp"

#include <algorithm>
#include <cmath>

#include "src/policy/advantages.hpp"

namespace gyr {

namespace {

// Mean and unbiased standard deviation of added values (Welford 1962, without cancellation).
struct Mean {
  double average = 0, squares = 0, count = 0, most = 0;
  void add(double x) {
    count += 1;
    const double before = x - average;
    average += before / count, squares += before * (x - average), most = std::max(most, x);
  }
  double mean() const { return average; }
  double deviation() const { return count > 1 ? std::sqrt(squares / (count - 1)) : 0; }
};

void add_rewards(const Rollouts& rollouts, IterationReport& report) {
  Mean all;
  std::vector<Mean> parts(rollouts.reward_names.size());
  for (const Rollout& r : rollouts.all) {
    if (r.reward) all.add(*r.reward);
    else report.without_reward += 1;
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (r.rewards[k]) parts[k].add(*r.rewards[k]);
  }
  report.reward = all.mean(), report.reward_deviation = all.deviation();
  for (std::size_t k = 0; k < parts.size(); ++k) report.rewards.emplace_back(rollouts.reward_names[k], parts[k].mean());
  const std::vector<bool> equal = groups_without_spread(rollouts);
  report.equal_groups = double(std::count(equal.begin(), equal.end(), true)) / double(std::max<std::size_t>(1, equal.size()));
}

void add_lengths(const Rollouts& rollouts, IterationReport& report) {
  Mean length, ended;
  report.shortest = rollouts.all.empty() ? 0 : rollouts.all.front().length();
  for (const Rollout& r : rollouts.all) {
    length.add(double(r.length())), ended.add(r.ended());
    report.shortest = std::min(report.shortest, r.length()), report.longest = std::max(report.longest, r.length());
  }
  report.length = length.mean(), report.ended = ended.mean();
}

void add_log_probs(const Rollouts& rollouts, IterationReport& report) {
  Mean said, gap, kl;
  for (const Rollout& r : rollouts.all)
    for (std::size_t t = 0; t < r.said.size(); ++t) {
      said.add(r.said[t]);
      if (!r.old.empty()) gap.add(std::abs(r.said[t] - r.old[t]));
      if (!r.reference.empty()) kl.add((r.old.empty() ? r.said : r.old)[t] - r.reference[t]);
    }
  report.log_prob = said.mean();
  if (gap.count > 0) report.gap = gap.mean(), report.largest_gap = gap.most;
  if (kl.count > 0) report.kl = kl.mean();
}

void add_corrections(const Rollouts& rollouts, const CorrectionRules& rules, IterationReport& report) {
  if (rules.of == CorrectionOf::none) return;
  Mean weight, left_out;
  for (const Rollout& r : rollouts.all)
    for (const double w : corrections_of(r, rules)) weight.add(w), left_out.add(w == 0);
  report.correction = weight.mean(), report.left_out = left_out.mean();
}

// Mean value before a token, and the share of the variance of the returns that the values explain.
void add_values(const Rollouts& rollouts, const Targets& targets, IterationReport& report) {
  Mean value, returns, error;
  for (std::size_t i = 0; i < targets.returns.size(); ++i)
    for (std::size_t t = 0; t < targets.returns[i].size() && rollouts.all[i].reward; ++t) {
      const double v = rollouts.all[i].values[t], r = targets.returns[i][t];
      value.add(v), returns.add(r), error.add(r - v);
    }
  if (value.count == 0) return;
  report.value = value.mean();
  const double spread = returns.deviation(), left = error.deviation();
  report.explained_variance = spread > 0 ? 1 - left * left / (spread * spread) : 0;
}

}  // namespace

IterationReport figures_of(const Rollouts& rollouts, const Targets& targets, const PolicyConfig& c, double seconds) {
  IterationReport report{.iteration = rollouts.iteration, .iterations = c.iterations, .version = rollouts.version};
  report.prompts = rollouts.groups(), report.answers = Index(rollouts.all.size()), report.seconds = seconds;
  add_rewards(rollouts, report);
  add_lengths(rollouts, report);
  add_log_probs(rollouts, report);
  add_values(rollouts, targets, report);
  add_corrections(rollouts, c.correction, report);
  report.prompts_drawn = rollouts.next_prompt;
  if (c.kl_target > 0) report.kl_coefficient = rollouts.kl_coefficient;
  Mean advantage;
  for (const auto& of_answer : targets.advantages)
    for (const double a : of_answer) advantage.add(a);
  report.advantage_deviation = advantage.deviation();
  return report;
}

}  // namespace gyr
