// SPDX-License-Identifier: BSD-3-Clause
// Settings of the rules that reward generated answers: deck section rl.rewards, with one section per reward.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "modules/settings/settings.hpp"

namespace gyr {

enum class RewardType { exact, regex, choice, number, format, length, repetition, tokens, process, model };
// Value of an answer to which a program gave no reward: stop ends the run, none is no value, zero is 0.
enum class OnFailure { stop, none, zero };

struct RewardConfig {
  std::string name;
  RewardType type = RewardType::exact;
  double weight = 1;
  std::vector<double> clip;                     // lowest and highest value; empty: no limits
  std::string field;                            // key of the prompt's line; model: empty for the decoded prompt
  std::vector<std::string> normalize = {};      // exact
  std::string pattern = {};                     // regex
  bool whole = false;                           // regex: the pattern must match the complete answer
  Index most_steps = 0;                         // regex
  std::vector<std::string> options = {};        // choice
  bool whole_words = false;                     // choice
  double tolerance = 0;                         // number
  std::vector<std::string> tags = {};           // format
  std::optional<Index> target = {}, most = {};  // length: one of them
  double scale = 1;                             // length, model
  double shift = 0;                             // model
  std::string model = {};                       // model: name in section models
  std::string text_format = {};                 // model: format of prompt and answer (key template); empty: chat template of the model
  Index ngram = 0;                              // repetition
  std::vector<std::string> command = {};        // process
  Index processes = 1, restarts = 0;            // process
  double timeout_seconds = 0;                   // process
  OnFailure on_failure = OnFailure::stop;       // process
};

// Path of a key of a reward, as in rl.rewards.answer.field.
std::string key_of_reward(const RewardConfig&, const std::string& key);
// One reward per name in the section, in the order of the deck. Exit::config for a key that the type of the reward lacks
// or does not have.
std::vector<RewardConfig> read_rewards(Section& rewards);
// True if the rule reads the text of answers; otherwise it reads their tokens only.
bool needs_text(const RewardConfig&);

}  // namespace gyr
