// SPDX-License-Identifier: BSD-3-Clause
// Rollouts: answers that the trained model has written to prompts, with the log-probabilities of their tokens and their rewards.
// An iteration of policy training generates P prompts x G answers, in the order of prompts and samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/generate/request.hpp"

namespace gyr {

struct Rollout {
  std::int64_t prompt = 0;  // number of the prompt in the run, counted through all epochs
  Index sample = 0;         // 0 to G - 1
  std::vector<Token> tokens = {};
  Index begin = 0;  // first token of the answer
  TextEnd end = TextEnd::none;
  // Per answer token: log-probability when it was drawn, under the policy before the update, and under the reference model.
  std::vector<double> said = {}, old = {}, reference = {};
  std::vector<double> values = {};                  // of the critic, before each answer token and after the last one; empty: no critic
  std::vector<std::optional<double>> rewards = {};  // of each rule; none: the rule could give none
  std::optional<double> reward = {};                // their weighted sum; none if one of them is

  Index length() const { return Index(tokens.size()) - begin; }  // tokens of the answer
  // True if the model ended the answer; otherwise it was cut at the maximum length.
  bool ended() const { return end == TextEnd::end || end == TextEnd::stop; }
};

// The rollouts of one iteration.
struct Rollouts {
  std::int64_t iteration = 0;    // counts from 0
  std::int64_t version = 0;      // optimizer steps of the weights that wrote them
  Index group = 1;               // G, answers per prompt
  std::int64_t next_prompt = 0;  // number of the first prompt of the next iteration
  double kl_coefficient = 0;     // of this iteration
  std::vector<std::string> reward_names = {};
  std::vector<Rollout> all = {};

  Index groups() const { return Index(all.size()) / group; }
};

}  // namespace gyr
