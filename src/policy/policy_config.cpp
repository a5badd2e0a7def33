// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/policy_config.hpp"

#include <algorithm>
#include <numeric>

#include "modules/settings/limits.hpp"
#include "src/base/limits.hpp"

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
  c.staleness = rl.get("staleness", 0,
                       "0: the weights before an iteration write its answers; 1: those before the iteration before do, so that "
                       "separate ranks (generate.separate) generate while the others train (one-step off-policy)")
                    .at_least(0)
                    .at_most(1)
                    .effect(Effect::function);
  c.seed = std::uint64_t(Index(rl.get("seed", 1, "seed of prompts, draws of tokens and minibatches").at_least(0)));
  c.old = get_word(rl, "old_logp", OldLogProbs::automatic, {"auto", "scored", "said"},
                   "log-probabilities before the update: auto (those of the step itself if an iteration has one step and no divergence in the "
                   "reward, else scored), scored (a "
                   "forward pass before the first update) or said (those of generation)");
  c.cut = get_word(rl, "overlong", CutAnswers::keep, {"keep", "mask", "soft"},
                   "answers that are cut at generate.max_new_tokens: keep; mask (they count neither in the loss nor as tokens); or soft (the reward "
                   "falls by up to 1 in the last overlong_buffer tokens)");
  c.buffer = rl.get("overlong_buffer", 0, "overlong: soft: tokens before max_new_tokens in which the reward falls by 1").at_least(0);
  c.waves = rl.get("dynamic_sampling", 1,
                   "maximum number of rounds of generation per iteration: prompts whose answers have equal rewards are replaced by the next prompts "
                   "(DAPO); 1: no prompt is replaced")
                .positive()
                .at_most(1000);
  c.skip_ratio = rl.get("skip_ratio", 5.0, "a minibatch whose mean probability ratio is higher changes no weight of the policy; 0: no limit")
                     .at_least(0)
                     .finite();
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
  const double target =
      s.get("target", 0.0, "divergence per answer that the coefficient is adapted to (Ziegler et al. 2019); 0: it is constant").at_least(0).finite();
  const double horizon = s.get("horizon", 10000.0, "answers in which an adapted coefficient follows the divergence").positive().finite();
  c.kl_target = target, c.kl_horizon = horizon;
  if (coefficient == 0) return;
  require(!in_loss || k != RewardKl::k1, Exit::config, "{}: the gradient of k1 is zero on average; use k2 or k3 there, or where: reward",
          s.settings_text({"estimator", "where"}));
  if (in_loss) c.kl_in_loss = coefficient, c.loss.kl = k == RewardKl::k2 ? KlEstimator::k2 : KlEstimator::k3;
  else c.advantage.kl = k, c.advantage.kl_coefficient = coefficient;
}

void read_advantage(Section& s, AdvantageRules& rules) {
  rules.scale = get_word(s, "scale", AdvantageScale::group, {"group", "batch", "none"},
                         "divisor of grpo's advantages: standard deviation in the group or over the batch, or none (Dr. GRPO)");
  rules.gamma = s.get("gamma", 1.0, "ppo: discount of rewards per token").positive().at_most(1);
  rules.lambda = s.get("lambda", 0.95, "ppo: decay of generalized advantage estimation (GAE)").at_least(0).at_most(1);
  rules.cut = get_word(s, "truncated", CutReward::score, {"score", "bootstrap"},
                       "ppo: last reward of an answer that is cut at max_new_tokens: its score, or the critic's value of what would follow");
}

// Answers of older weights are corrected by default.
void read_correction(Section& s, CorrectionRules& rules, Index staleness) {
  enum class Weights { automatic, none, token, sequence };
  const Weights weights = get_word(
      s, "weights", Weights::automatic, {"auto", "none", "token", "sequence"},
      "weights exp(old - generation's log-probability) in the loss: none, of each token, or of the product over the answer (truncated importance "
      "sampling); auto: token if rl.staleness is 1, else none");
  const bool corrects = weights == Weights::automatic ? staleness > 0 : weights != Weights::none;
  rules.of = !corrects ? CorrectionOf::none : weights == Weights::sequence ? CorrectionOf::sequence : CorrectionOf::token;
  rules.low = s.get("low", 0.0, "lowest weight").at_least(0).finite();
  rules.high = s.get("high", 2.0, "highest weight").positive().finite();
  rules.outside =
      get_word(s, "outside", OutsideLimits::clip, {"clip", "mask"}, "weights outside of the limits: clip, or mask (the tokens count nowhere)");
  require(rules.low < rules.high, Exit::config, "{}: low is not below high", s.settings_text({"low", "high"}));
}

void read_critic(Section& s, PolicyConfig& c) {
  c.critic_rate = s.get("lr_factor", 1.0, "ppo: learning rate of the critic, as a multiple of that of the policy").positive().finite();
  c.loss.value_clip = s.get("clip", 0.2, "ppo: clip width of values around those before the update; 0: no clip").at_least(0).finite();
  c.critic_warmup = s.get("warmup_iterations", 0, "ppo: iterations at the begin that train the critic alone").at_least(0);
}

void read_layout(Section& s, GenerationLayout& g) {
  g.ranks = s.get("ranks", "all", "ranks of the run that generate: all, or numbers and ranges as in 0-3,6 (rollout uses all ranks)")
                .effect(Effect::none)
                .value();
  const auto axis = [&](const char* key, const char* help) -> int { return s.get(key, 0, help).at_least(0).at_most(most_axis).effect(Effect::none); };
  g.pipeline = axis("pipeline", "pipeline-parallel size of generation; 0: parallel.pipeline");
  g.tensor = axis("tensor",
                  "tensor-parallel size of generation; 0: parallel.tensor. With this or another key of its own layout, generation has a copy of the "
                  "weights, which is updated before each iteration");
  g.precision = s.get("precision", "", "type of its weights and activations: fp64, fp32 or bf16; empty: train.precision")
                    .one_of({"", "fp64", "fp32", "bf16"})
                    .value();
  g.separate = s.get("separate", false, "the ranks in `ranks` only generate, and the others train").effect(Effect::none);
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
  read_layout(s, c.generation);
  c.end_tokens =
      s.get("end_tokens", std::vector<Index>{}, "token ids that end an answer; empty: those of data.tokenizer's model").at_least(0).value();
}

void read_plan(Section& s, PolicyAssumptions& plan) {
  plan.prompt_tokens = s.get("prompt_tokens", 0, "mean tokens of a prompt; 0: those of the data, or if it cannot be read all that fit a window")
                           .unit("tokens")
                           .at_least(0)
                           .at_most(longest)
                           .effect(Effect::none);
  plan.answer_tokens = s.get("answer_tokens", 0, "mean tokens of an answer; 0: generate.max_new_tokens")
                           .unit("tokens")
                           .at_least(0)
                           .at_most(longest)
                           .effect(Effect::none);
  plan.reward_seconds = s.get("reward_seconds", 0.0, "time that all rules of an iteration take besides reward models")
                            .unit("s")
                            .at_least(0)
                            .finite()
                            .effect(Effect::none);
}

void check(Section& rl, const PolicyConfig& c) {
  const bool compares = c.advantage.algorithm != PolicyAlgorithm::reinforce && !c.has_critic();
  require(!compares || c.group > 1, Exit::config,
          "{}: this algorithm compares the answers to one prompt; set num_generations to 2 or more, or algorithm: reinforce++ or ppo",
          rl.settings_text({"num_generations", "algorithm"}));
  const Index nearest = std::gcd(c.rollouts(), c.minibatches);
  require(c.rollouts() % c.minibatches == 0, Exit::config,
          "{}: minibatches does not divide the {} answers of an iteration (prompts x num_generations); {} does",
          rl.settings_text({"minibatches", "prompts", "num_generations"}), c.rollouts(), nearest);
  require(c.advantage.scale == AdvantageScale::group || c.advantage.algorithm == PolicyAlgorithm::grpo, Exit::config,
          "{}: only grpo divides by a standard deviation; remove advantage.scale, or set algorithm: grpo",
          rl.settings_text({"advantage.scale", "algorithm"}));
  require(c.correction.of == CorrectionOf::none || c.scores_old(), Exit::config,
          "{}: the weights compare generation with a scoring pass; set old_logp: scored or auto",
          rl.settings_text({"correction.weights", "old_logp"}));
  require(c.has_critic() || c.critic_warmup == 0, Exit::config, "{}: only ppo has a critic; remove critic.warmup_iterations, or set algorithm: ppo",
          rl.settings_text({"critic.warmup_iterations", "algorithm"}));
  require(c.critic_warmup < c.iterations, Exit::config, "{}: the policy would never learn; train the critic alone for fewer iterations",
          rl.settings_text({"critic.warmup_iterations", "iterations"}));
  require((c.cut == CutAnswers::soft) == (c.buffer > 0) && c.buffer <= c.max_new_tokens, Exit::config,
          "{}: overlong: soft needs an overlong_buffer of 1 to {} tokens (generate.max_new_tokens), and only soft reads it",
          rl.settings_text({"overlong", "overlong_buffer"}), c.max_new_tokens);
  require(c.waves == 1 || c.group > 1, Exit::config,
          "{}: the only answer to a prompt equals itself, and every prompt would be replaced; set num_generations to 2 or more",
          rl.settings_text({"dynamic_sampling", "num_generations"}));
  require(c.waves == 1 || c.staleness == 0, Exit::config,
          "{}: when rewards show that prompts must be replaced, the weights that wrote their answers have already changed; set one of them to its "
          "default",
          rl.settings_text({"dynamic_sampling", "staleness"}));
  require(!c.generation.separate || c.generation.ranks != "all", Exit::config,
          "{}: no rank would train; name the ranks that only generate, such as generate.ranks: 4-7 of 8",
          rl.settings_text({"generate.separate", "generate.ranks"}));
  require(c.kl_target == 0 || c.kl_horizon >= double(c.rollouts()), Exit::config,
          "{}: the coefficient would jump or change its sign; take at least the {} answers of an iteration", rl.settings_text({"kl.horizon"}),
          c.rollouts());
  require(c.correction.of == CorrectionOf::none || (c.correction.low <= 1 && c.correction.high >= 1), Exit::config,
          "{}: answers of the policy itself have weight 1, which lies outside; choose low <= 1 <= high",
          rl.settings_text({"correction.low", "correction.high"}));
  require(c.kl_target == 0 || c.reads_reference(), Exit::config, "{}: there is no divergence to adapt; set kl.coefficient to the first coefficient",
          rl.settings_text({"kl.target", "kl.coefficient"}));
  const std::vector<std::string>& names = c.loss.reward_models;
  for (const char* const name : {"reference", "critic"})
    require(std::find(names.begin(), names.end(), name) == names.end(), Exit::config,
            "rl.rewards: models.{} is the {}, and no reward model; name another model", name,
            name == std::string("critic") ? "critic of ppo" : "reference of the KL divergence");
  require(c.plan.answer_tokens <= c.max_new_tokens, Exit::config, "{}: answers have at most {} tokens (generate.max_new_tokens)",
          rl.settings_text({"plan.answer_tokens"}), c.max_new_tokens);
  require(!c.rewards.empty(), Exit::config,
          "rl.rewards is empty: nothing would be learnt; name at least one, such as rewards: {{answer: {{type: exact, field: target}}}}");
}

// A resumed run would learn something else with another algorithm, so that it is refused without --accept-changes.
PolicyAlgorithm read_algorithm(Section& rl) {
  const std::vector<std::string> words{"grpo", "rloo", "reinforce++", "reinforce++-baseline", "ppo"};
  const std::string word =
      rl.get("algorithm", words.front(),
             "advantages: relative to the group (grpo), to the others of the group (rloo), rewards to go, whitened (reinforce++), or to the values "
             "of a critic (ppo, with models.critic)")
          .one_of(words)
          .effect(Effect::function);
  return PolicyAlgorithm(std::find(words.begin(), words.end(), word) - words.begin());
}

}  // namespace

PolicyConfig read_policy(Section& rl, bool trains) {
  PolicyConfig c;
  c.advantage.algorithm = read_algorithm(rl);
  read_counts(rl, c);
  read_loss(rl.section("loss", "policy loss"), c);
  read_kl(rl.section("kl", "divergence from the reference model"), c);
  read_advantage(rl.section("advantage", "advantages"), c.advantage);
  read_correction(rl.section("correction", "correction of a difference between generation and training"), c.correction, c.staleness);
  read_critic(rl.section("critic", "training of the critic (models.critic)"), c);
  read_generate(rl.section("generate", "generation of the answers"), c);
  read_plan(rl.section("plan", "assumptions of the times that gyrfalcon plan --cluster predicts"), c.plan);
  c.rewards = read_rewards(rl.section("rewards", "rules that reward an answer, by name"));
  c.loss.reads_reference = c.reads_reference(), c.loss.has_critic = c.has_critic();
  for (const RewardConfig& reward : c.rewards)
    if (reward.type == RewardType::model &&
        std::find(c.loss.reward_models.begin(), c.loss.reward_models.end(), reward.model) == c.loss.reward_models.end())
      c.loss.reward_models.push_back(reward.model);
  const bool one_pass = c.steps_of_iteration() == 1 && c.advantage.kl == RewardKl::none && c.correction.of == CorrectionOf::none;
  if (c.old == OldLogProbs::automatic) c.old = one_pass ? OldLogProbs::step : OldLogProbs::scored;
  c.loss.old_of_step = c.old == OldLogProbs::step;
  if (trains) check(rl, c);
  return c;
}

}  // namespace gyr
