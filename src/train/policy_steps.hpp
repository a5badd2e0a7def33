// SPDX-License-Identifier: BSD-3-Clause
// Steps of policy training. Each iteration generates answers with the present weights, rewards them and computes advantages. Its steps
// then train on minibatches of these answers. The answers are kept in OUTPUT/rollouts, so that a run can resume within an iteration.
#pragma once

#include <deque>

#include "src/policy/rewards/reward.hpp"
#include "src/policy/window_samples.hpp"
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

 private:
  struct Iteration;
  const PolicyConfig& config() const { return *parts_.run.policy; }
  std::unique_ptr<Iteration> generated(std::int64_t iteration, const CheckpointHeader& at);
  std::unique_ptr<Iteration> stored(std::int64_t iteration);
  std::vector<Request> requests(std::int64_t iteration) const;
  Rollouts written(std::int64_t iteration, const CheckpointHeader& at);
  void judge(Rollouts&);
  std::vector<Answer> answers_of(const Rollouts&, std::deque<Json>& fields) const;
  void score(Iteration&);
  bool is_logged(std::int64_t iteration) const;
  std::vector<double> from_first_rank(std::size_t count, const std::function<std::vector<double>()>& compute);

  RunParts parts_;
  const Prompts& prompts_;
  RunLog* log_;
  std::set<Token> ends_;
  std::shared_ptr<const Tokenizer> tokenizer_;    // null: no rule reads text
  std::vector<std::unique_ptr<Reward>> rewards_;  // on the first rank
  std::unique_ptr<Iteration> current_;
};

// Source of the steps of a run: its corpus, or the answers to its prompts.
std::unique_ptr<StepSource> step_source(const RunParts&, const RunData&, RunLog*);

}  // namespace gyr
