// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/equal_rewards.hpp"

#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {

bool EqualRewards::is_by_group(PolicyAlgorithm algorithm) {
  using enum PolicyAlgorithm;
  return algorithm == grpo || algorithm == rloo || algorithm == reinforce_baseline;
}

std::string EqualRewards::warning(const IterationReport& figures) {
  constexpr Index early = 5, patience = 10;
  constexpr double nearly_all = 0.9;
  if (figures.iteration == first_ && first_ < early) ++first_, equal_ += figures.equal_groups;
  idle_ = figures.advantage_deviation == 0 ? idle_ + 1 : 0;
  if (warned_) return "";
  const bool none_rewarded = figures.without_reward == figures.answers;
  if (idle_ == patience) {
    warned_ = true;
    return fmt::format(
        "in {} iterations {}: the policy learns nothing; print some answers with gyrfalcon rollout, and give rewards that differ "
        "between them",
        patience, none_rewarded ? "no answer had a reward" : "all answers to a prompt had equal rewards");
  }
  const double mean = equal_ / double(early);
  if (!by_group_ || none_rewarded || figures.iteration + 1 != early || first_ != early || mean < nearly_all) return "";
  warned_ = true;
  return fmt::format(
      "in the first {} iterations {:.0f} % of the prompts had answers with equal rewards, and these give no gradient; give rewards for partial "
      "success, take prompts that the model sometimes answers, raise rl.num_generations, or replace such prompts with rl.dynamic_sampling",
      early, 100 * mean);
}

}  // namespace gyr
