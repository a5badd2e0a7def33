// SPDX-License-Identifier: BSD-3-Clause
// Rewards of generated answers: the rules of section rl.rewards, which the first rank applies, and values of reward models.
#pragma once

#include <deque>

#include "src/policy/rewards/reward.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/reward_texts.hpp"
#include "src/train/window_scores.hpp"

namespace gyr {

class AnswerJudge {
 public:
  // Values of the rows of samples by a further model, samples x seq_length, on every rank.
  using RowsOf = std::function<std::vector<double>(const std::string& model, const StepSamples&)>;

  // `prompts` and `grid` outlive the judge. Collective over the grid, as reward(). Exit::missing for a program that does not exist.
  AnswerJudge(const RunConfig&, const Prompts& prompts, Grid& grid, RowsOf);
  ~AnswerJudge();
  // Sets the rewards of all answers, on every rank.
  void reward(Rollouts&);

  // Text of an answer, or of a prompt, without token ids that the tokenizer lacks (padding of the vocabulary); none if no rule reads text.
  std::optional<std::string> answer_text(std::span<const Token>) const;
  std::optional<std::string> prompt_text(std::span<const Token>) const;

 private:
  const PolicyConfig& config() const { return *run_.policy; }
  std::vector<std::vector<double>> values_of_models(const Rollouts&);
  std::vector<double> values_of(const RewardConfig& rule, const Rollouts& texts);
  Rollouts texts_of(const RewardTexts&, const Rollouts&) const;
  std::vector<Answer> answers_of(const Rollouts&, std::deque<Json>& fields) const;
  std::vector<double> from_first_rank(std::size_t count, const std::function<std::vector<double>()>& compute);

  const RunConfig& run_;
  const Prompts& prompts_;
  Grid& grid_;
  RowsOf rows_of_;
  std::unique_ptr<const Tokenizer> tokenizer_;     // null: no rule reads text
  std::vector<std::optional<RewardTexts>> texts_;  // of each rule whose model reads texts of its own
  std::vector<std::unique_ptr<Reward>> rules_;     // on the first rank
};

}  // namespace gyr
