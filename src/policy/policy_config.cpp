// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/policy_config.hpp"

#include <numeric>

#include "modules/settings/limits.hpp"

namespace gyr {

namespace {

constexpr Index most_rollouts = Index(1) << 20;

void read_counts(Section& rl, PolicyConfig& c) {
  c.iterations = rl.get("iterations", 200, "iterations: each generates answers, and trains on them in epochs x minibatches optimizer steps")
                     .positive()
                     .at_most(Index(1) << 32);
  c.prompts = rl.get("prompts", 32, "prompts of an iteration").positive().at_most(most_rollouts).effect(Effect::function);
  c.group = rl.get("num_generations", 8, "answers to each prompt (group size G)").positive().at_most(Index(1) << 12).effect(Effect::function);
  c.epochs = rl.get("epochs", 1, "passes over the answers of an iteration").positive().at_most(1000).effect(Effect::function);
  c.minibatches = rl.get("minibatches", 1, "optimizer steps per epoch; it divides prompts x num_generations")
                      .positive()
                      .at_most(most_rollouts)
                      .effect(Effect::function);
  c.seed = std::uint64_t(Index(rl.get("seed", 1, "seed of prompts, draws of tokens and minibatches").at_least(0)));
  c.old = get_word(rl, "old_logp", OldLogProbs::automatic, {"auto", "scored", "said"},
                   "log-probabilities before the update: auto (those of the step itself if an iteration has one step and no divergence in the "
                   "reward, else scored), scored (a "
                   "forward pass before the first update) or said (those of generation)");
  c.cut = get_word(rl, "overlong", CutAnswers::keep, {"keep", "mask"},
                   "answers that are cut at generate.max_new_tokens: keep, or mask (they count neither in the loss nor as tokens)");
}

void read_loss(Section& s, PolicyConfig& c) {
  c.loss.ratio = get_word(s, "ratio", PolicyRatio::token, {"token", "sequence"},
                          "probability ratio of each token, or its geometric mean over the answer (GSPO, importance_sampling_level of TRL)");
  c.aggregate = get_word(s, "aggregate", LossAggregate::token, {"token", "sequence", "constant"},
                         "weight of a token: 1/N of all tokens (DAPO), 1/(answers x its length) (GRPO), or 1/(answers x max_new_tokens) (Dr. GRPO)");
  c.loss.clip.low = s.get("clip_low", 0.2, "clip width below a ratio of 1 (epsilon)").positive().at_most(1);
  c.loss.clip.high = s.get("clip_high", 0.2, "clip width above a ratio of 1 (epsilon_high)").positive().finite();
  c.loss.clip.dual = s.get("dual_clip", 0.0, "limit of the ratio where the advantage is negative (dual-clip PPO); 0: none").at_least(0).finite();
  c.entropy_coefficient = s.get("entropy_coefficient", 0.0, "weight of the entropy bonus").at_least(0).finite();
  c.loss.entropy_bonus = c.entropy_coefficient > 0;
  require(c.loss.clip.dual == 0 || c.loss.clip.dual > 1, Exit::config, "{}: a limit of the ratio is above 1; 3 is usual, and 0 disables it",
          s.settings_text({"dual_clip"}));
}

void read_kl(Section& s, PolicyConfig& c) {
  const double coefficient =
      s.get("coefficient", 0.0, "weight of the KL divergence from models.reference (beta); 0: no reference model is needed").at_least(0).finite();
  const bool in_loss = s.get("where", "loss", "part that the divergence enters: loss, or reward (it is subtracted from the rewards)")
                           .one_of({"loss", "reward"})
                           .value() == "loss";
  const std::vector<std::string> words{"k1", "k2", "k3"};
  const std::string word = s.get("estimator", "k3", "estimator of the KL divergence per token (Schulman 2020)").one_of(words);
  const RewardKl k = word == "k1" ? RewardKl::k1 : word == "k2" ? RewardKl::k2 : RewardKl::k3;
  if (coefficient == 0) return;
  require(!in_loss || k != RewardKl::k1, Exit::config, "{}: the gradient of k1 is zero on average; use k2 or k3 there, or where: reward",
          s.settings_text({"estimator", "where"}));
  if (in_loss) c.kl_in_loss = coefficient, c.loss.kl = k == RewardKl::k2 ? KlEstimator::k2 : KlEstimator::k3;
  else c.advantage.kl = k, c.advantage.kl_coefficient = coefficient;
}

void read_generate(Section& s, PolicyConfig& c) {
  c.max_new_tokens = s.get("max_new_tokens", 256, "maximum number of tokens of an answer").unit("tokens").positive().at_most(longest);
  c.loss.temperature =
      s.get("temperature", 1.0, "temperature of generation, by which the logits of training are divided too").at_least(0.01).finite();
  c.sequences = s.get("sequences_together", 0, "answers that a rank decodes at once; 0: all of its answers of an iteration, at most 64")
                    .at_least(0)
                    .at_most(most_rollouts)
                    .effect(Effect::none);
  c.exact = s.get("exact", false, "decode in blocks of 8, so that no bit of an answer depends on the answers beside it");
  c.end_tokens =
      s.get("end_tokens", std::vector<Index>{}, "token ids that end an answer; empty: those of data.tokenizer's model").at_least(0).value();
}

void check(Section& rl, const PolicyConfig& c) {
  const bool compares = c.advantage.algorithm != PolicyAlgorithm::reinforce;
  require(!compares || c.group > 1, Exit::config,
          "{}: this algorithm compares the answers to one prompt; set num_generations to 2 or more, or algorithm: reinforce++",
          rl.settings_text({"num_generations", "algorithm"}));
  const Index nearest = std::gcd(c.rollouts(), c.minibatches);
  require(c.rollouts() % c.minibatches == 0, Exit::config,
          "{}: minibatches does not divide the {} answers of an iteration (prompts x num_generations); {} does",
          rl.settings_text({"minibatches", "prompts", "num_generations"}), c.rollouts(), nearest);
  require(c.advantage.scale == AdvantageScale::group || c.advantage.algorithm == PolicyAlgorithm::grpo, Exit::config,
          "{}: only grpo divides by a standard deviation; remove advantage.scale, or set algorithm: grpo",
          rl.settings_text({"advantage.scale", "algorithm"}));
  require(!c.rewards.empty(), Exit::config,
          "rl.rewards is empty: nothing would be learnt; name at least one, such as rewards: {{answer: {{type: exact, field: target}}}}");
}

}  // namespace

PolicyConfig read_policy(Section& rl, bool trains) {
  PolicyConfig c;
  c.advantage.algorithm =
      get_word(rl, "algorithm", PolicyAlgorithm::grpo, {"grpo", "rloo", "reinforce++", "reinforce++-baseline"},
               "advantages: relative to the group (grpo), to the others of the group (rloo), or rewards to go, whitened (reinforce++)");
  read_counts(rl, c);
  read_loss(rl.section("loss", "policy loss"), c);
  read_kl(rl.section("kl", "divergence from the reference model"), c);
  c.advantage.scale = get_word(rl.section("advantage", "advantages"), "scale", AdvantageScale::group, {"group", "batch", "none"},
                               "divisor of grpo's advantages: standard deviation in the group or over the batch, or none (Dr. GRPO)");
  read_generate(rl.section("generate", "generation of the answers"), c);
  c.rewards = read_rewards(rl.section("rewards", "rules that reward an answer, by name"));
  c.loss.reads_reference = c.reads_reference();
  const bool one_pass = c.steps_of_iteration() == 1 && c.advantage.kl == RewardKl::none;
  if (c.old == OldLogProbs::automatic) c.old = one_pass ? OldLogProbs::step : OldLogProbs::scored;
  c.loss.old_of_step = c.old == OldLogProbs::step;
  if (trains) check(rl, c);
  return c;
}

}  // namespace gyr
