// SPDX-License-Identifier: BSD-3-Clause
// Settings of policy training from rewards (train.objective: policy): deck section rl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "modules/objectives/policy_settings.hpp"
#include "modules/settings/settings.hpp"
#include "src/policy/advantages.hpp"
#include "src/policy/correction.hpp"
#include "src/policy/rewards/reward_config.hpp"

namespace gyr {

// Weight of an answer token in the loss of a minibatch with B answers and N answer tokens: 1 / N, 1 / (B T) for an answer of T
// tokens, or 1 / (B max_new_tokens).
enum class LossAggregate { token, sequence, constant };
// Log-probabilities of the policy before the update. automatic: step if an iteration is one optimizer step, else scored. step: those of
// the step itself. scored: a forward pass over the windows before the first update. said: those of the generation.
enum class OldLogProbs { automatic, scored, said, step };
// Treatment of answers that were cut at max_new_tokens. soft: answers in the last tokens before it lose reward (DAPO).
enum class CutAnswers { keep, mask, soft };

// Ranks, layout and precision of generation. Empty and 0: those of training.
struct GenerationLayout {
  std::string ranks = "all";  // as Mesh::read reads them
  int pipeline = 0, tensor = 0;
  std::string precision;
  bool separate = false;  // these ranks do not train

  bool own() const { return ranks != "all" || pipeline > 0 || tensor > 0 || !precision.empty(); }
};

// Assumptions of predicted times (gyrfalcon plan --cluster) about the texts and the rules. A run does not read them.
struct PolicyAssumptions {
  Index prompt_tokens = 0, answer_tokens = 0;  // means; 0: of the data, and rl.generate.max_new_tokens
  double reward_seconds = 0;                   // of all rules of an iteration, without reward models
};

struct PolicyConfig {
  Index iterations = 0, prompts = 0, group = 0, epochs = 1, minibatches = 1;
  std::uint64_t seed = 1;
  Index staleness = 0;  // iterations between the weights that write the answers of an iteration and those that are trained on them
  AdvantageRules advantage;
  PolicySettings loss;
  LossAggregate aggregate = LossAggregate::token;
  double entropy_coefficient = 0;
  double kl_in_loss = 0;  // coefficient of loss.kl
  OldLogProbs old = OldLogProbs::automatic;
  CorrectionRules correction;
  CutAnswers cut = CutAnswers::keep;
  Index buffer = 0;                         // CutAnswers::soft: tokens before max_new_tokens in which the reward falls by 1
  Index waves = 1;                          // dynamic sampling: most rounds of generation until all groups have different rewards; 1: one round
  double kl_target = 0;                     // adaptive KL coefficient: divergence of an answer that is aimed at; 0: the coefficient is constant
  double kl_horizon = 1;                    // adaptive KL coefficient: answers in which the coefficient follows
  double skip_ratio = 0;                    // a minibatch with a higher mean ratio changes no weight; 0: none
  double critic_rate = 1;                   // learning rate of the critic over that of the policy
  Index critic_warmup = 0;                  // iterations at the begin that train the critic alone
  Index max_new_tokens = 0, sequences = 0;  // sequences: decoded together; 0: automatic
  bool exact = false;
  std::vector<Index> end_tokens;
  GenerationLayout generation;
  PolicyAssumptions plan;
  std::vector<RewardConfig> rewards;

  Index rollouts() const { return prompts * group; }  // of an iteration
  Index per_minibatch() const { return rollouts() / minibatches; }
  Index steps_of_iteration() const { return epochs * minibatches; }
  Index steps() const { return iterations * steps_of_iteration(); }
  bool reads_reference() const { return kl_in_loss > 0 || advantage.kl != RewardKl::none; }
  bool scores_old() const { return old == OldLogProbs::scored; }
  bool has_critic() const { return advantage.algorithm == PolicyAlgorithm::ppo; }
};

// Declares section rl. Exit::config if settings contradict each other, for runs that are trained with it (`trains`).
PolicyConfig read_policy(Section& rl, bool trains);

}  // namespace gyr
