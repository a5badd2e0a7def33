// SPDX-License-Identifier: BSD-3-Clause
// Steps of policy training. Each iteration generates answers with the present weights, rewards them and computes advantages. Its steps
// then train on minibatches of these answers. The answers are kept in OUTPUT/rollouts, so that a run can resume within an iteration.
// With rl.staleness = 1, an iteration begins by ordering the answers of the next one from the weights before its own steps.
#pragma once

#include "src/policy/equal_rewards.hpp"
#include "src/policy/iteration_state.hpp"
#include "src/policy/window_samples.hpp"
#include "src/train/answer_judge.hpp"
#include "src/train/run_log.hpp"
#include "src/train/run_parts.hpp"
#include "src/train/step_source.hpp"

namespace gyr {

class PolicySteps final : public StepSource {
 public:
  // `log`: null except on the first rank. `prompts` outlives the steps.
  PolicySteps(const RunParts&, const Prompts& prompts, RunLog* log);
  ~PolicySteps() override;
  StepSamples samples(Index number, const CheckpointHeader& at, const std::vector<Span>& skip) override;
  std::vector<std::pair<std::string, double>> train_beside(const StepOrder&) override;  // the critic
  void before_save() override;

 private:
  struct Iteration;
  struct Order;
  const PolicyConfig& config() const { return *parts_.run.policy; }
  std::unique_ptr<Iteration> generated(std::int64_t iteration, const CheckpointHeader& at);
  std::unique_ptr<Iteration> stored(std::int64_t iteration);
  Rollouts read(std::int64_t iteration) const;
  IterationState state_before(std::int64_t iteration) const;
  Rollouts read_answers(const std::filesystem::path&, std::int64_t iteration, Index needed_after) const;
  Index version_of(std::int64_t iteration) const;
  void order(std::int64_t iteration, std::int64_t first_prompt, const CheckpointHeader& at);
  Rollouts ordered();
  Rollouts answers(std::int64_t iteration, std::int64_t first_prompt, const CheckpointHeader& at);
  Rollouts judged(std::int64_t iteration, const IterationState&, const CheckpointHeader& at);
  void judge(Rollouts&);
  void score(Iteration&);
  bool refuses(std::int64_t iteration, Index step, const StepResult&) const;
  bool is_logged(std::int64_t iteration) const;

  RunParts parts_;
  const Prompts& prompts_;
  RunLog* log_;
  Sampling sampling_;
  EqualRewards equal_rewards_;
  AnswerJudge judge_;
  CallTimes call_times_;
  std::unique_ptr<Iteration> current_;
  std::unique_ptr<Order> order_;  // answers of the next iteration, or those that are being generated
  StepSamples of_critic_;         // of the present step
};

// Source of the steps of a run: its corpus, or the answers to its prompts.
std::unique_ptr<StepSource> step_source(const RunParts&, const RunData&, RunLog*);

}  // namespace gyr
