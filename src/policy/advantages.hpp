// SPDX-License-Identifier: BSD-3-Clause
// Advantages of rollouts, computed on the host in double precision in the order of ids, so that they do not depend on the layout.
//   R_i reward of rollout i, of group g; r_t reward of token t
//   grpo                  A = (R_i - mean_g) / (s + 1e-4): s deviation in the group, over the batch, or no division (Dr. GRPO)
//   rloo                  A = R_i - mean of the others of its group
//   reinforce++           A_t = sum of r from t on, whitened
//   reinforce++-baseline  A = R_i - mean_g, whitened over tokens
//   ppo                   generalized advantage estimation (GAE), whitened: A_t = delta_t + gamma lambda A_{t+1}, with
//                         delta_t = r_t + gamma V_{t+1} - V_t and the critic's value V_t before token t
//   whitened              (A - mean) / sqrt(variance + 1e-8), over all answer tokens
// Sources: Shao et al. 2024 (GRPO), Liu et al. 2025 (Dr. GRPO), Ahmadian et al. 2024 (RLOO), Hu 2025 (REINFORCE++),
// Schulman et al. 2016 (GAE).
#pragma once

#include "src/policy/rollout.hpp"

namespace gyr {

enum class PolicyAlgorithm { grpo, rloo, reinforce, reinforce_baseline, ppo };
// Last reward of an answer that was cut: its score, as if it had ended, or the value of what would follow.
enum class CutReward { score, bootstrap };
enum class AdvantageScale { group, batch, none };
// Estimators of the KL divergence of two log-probabilities, with d = target - actual: k1 = -d, k2 = d^2 / 2, k3 = e^d - d - 1.
enum class RewardKl { none, k1, k2, k3 };

struct AdvantageRules {
  PolicyAlgorithm algorithm = PolicyAlgorithm::grpo;
  AdvantageScale scale = AdvantageScale::group;
  RewardKl kl = RewardKl::none;  // estimator that the rewards subtract, of the old policy against the reference
  double kl_coefficient = 0;
  double gamma = 1, lambda = 0.95;   // ppo: discount of rewards, decay of GAE
  CutReward cut = CutReward::score;  // ppo
};

double kl_of(RewardKl, double actual, double target);

// Advantage of each answer token of each rollout. Rollouts without a reward are left out of all statistics, and their advantages are 0.
std::vector<std::vector<double>> advantages_of(const Rollouts&, const AdvantageRules&);
// ppo: returns, which the critic learns: advantages before whitening + values. 0 for rollouts without a reward.
std::vector<std::vector<double>> returns_of(const Rollouts&, const AdvantageRules&);

// True for each group whose rewards are all equal, or missing, and therefore teach nothing.
std::vector<bool> groups_without_spread(const Rollouts&);

}  // namespace gyr
