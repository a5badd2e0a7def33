// SPDX-License-Identifier: BSD-3-Clause
// Rewards: rules that give each generated answer a value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/json.hpp"
#include "src/policy/rewards/reward_config.hpp"

namespace gyr {

// A generated answer. The tokens and fields must outlive the call that values them.
struct Answer {
  std::int64_t prompt = 0, sample = 0;                  // number of the prompt in the run, and of its answer
  std::span<const std::int32_t> tokens;                 // from the begin of the answer to its end
  std::string text;                                     // the same, decoded without special tokens; not set unless needs_text()
  bool ended = false;                                   // true: the model ended the answer; false: it was cut
  const Json* fields = nullptr;                         // the other keys of the prompt's line, an object
  std::string place;                                    // place of this line for messages, as in "line 17 of out/arith/train_fields.jsonl"
  std::string prompt_text = {};                         // process: text of the prompt
  std::int64_t step = 0;                                // process: optimizer steps of the run so far
  std::map<std::string, double> values_of_models = {};  // model: value of prompt and answer, by the rule's name
};

class Reward {
 public:
  virtual ~Reward() = default;
  // Values of the answers, in their order, within the limits of `clip` and without the weight; nullopt if the rule could
  // give none. Exit::data if a prompt's line lacks the field or has one that the rule cannot read. Exit::numeric for a
  // value that is not finite.
  virtual std::vector<std::optional<double>> of(const std::vector<Answer>& answers) = 0;
};

// `output`: folder of the run; a process logs to OUTPUT/rewards/NAME.log. Exit::config for a pattern that does not
// compile, Exit::missing for a program that does not exist.
std::unique_ptr<Reward> make_reward(const RewardConfig&, const std::filesystem::path& output);

// Name of an answer in messages and requests: prompt and sample, as in "17/2".
std::string id_of(const Answer&);

}  // namespace gyr
