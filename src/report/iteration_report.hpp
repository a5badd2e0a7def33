// SPDX-License-Identifier: BSD-3-Clause
// Metrics of an iteration of policy training: its answers, their rewards and advantages.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

struct IterationReport {
  Index iteration = 0, iterations = 0, version = 0;  // version: optimizer steps of the weights that wrote the answers
  Index prompts = 0, answers = 0;
  double reward = 0, reward_deviation = 0;                   // mean and standard deviation over the answers that have a reward
  std::vector<std::pair<std::string, double>> rewards = {};  // mean of each rule
  Index without_reward = 0;                                  // answers that a rule could not reward
  double equal_groups = 0;                                   // fraction 0..1 of the prompts whose answers have equal rewards
  double advantage_deviation = 0;
  double length = 0;                                 // mean tokens of an answer
  Index shortest = 0, longest = 0;                   // tokens
  double ended = 0;                                  // fraction 0..1 of the answers that the model ended itself
  double log_prob = 0;                               // mean log-probability per token when it was drawn
  std::optional<double> gap = {}, largest_gap = {};  // mean and largest |ln p in generation - ln p in scoring|, if old log-probabilities were scored
  std::optional<double> kl = {};                     // mean k1 = old - reference per token, if there is a reference model
  std::optional<double> value = {}, explained_variance = {};  // of a critic: mean value, 1 - variance of return - value / variance of the return
  std::optional<double> correction = {},
                        left_out = {};        // mean weight of a token by rl.correction, and fraction 0..1 of the tokens that it leaves out
  std::optional<double> kl_coefficient = {};  // if it is adapted
  Index prompts_drawn = 0;                    // since the run began
  double seconds = 0;                         // generating, rewarding and scoring
};

// Line of the log, at most 120 characters.
std::string iteration_line(const IterationReport&);
// Line of metrics.jsonl, of kind "iteration".
std::string iteration_json(const IterationReport&, double time);

}  // namespace gyr
