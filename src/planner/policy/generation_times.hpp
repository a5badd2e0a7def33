// SPDX-License-Identifier: BSD-3-Clause
// Seconds that the answers of an iteration take to generate, from dry runs of the generator.
//   a data coordinate with p prompts and slots for s sequences:
//     p (read a prompt + copies of its state) + sum over waves of min(s, answers left) answers: (t - 1) decode(n, mean length)
//   decode(n, past) is counted for n = 1, 2, 4, ... sequences and for two lengths, and is linear between them.
// A pass visits the pipeline stages one after another: its seconds are the sum over the stages of kernels, collectives and messages.
#pragma once

#include <map>
#include <string>

#include "src/planner/policy/pass_times.hpp"
#include "src/train/policy_generation.hpp"

namespace gyr {

// Answers of an iteration, all of the same length.
struct AnswerCounts {
  Index prompts = 1, group = 1;         // prompts, and answers to each
  Index prompt_tokens = 1, tokens = 1;  // of a prompt, and of an answer
  Index longest_prompt = 1;             // of the data, in tokens; memory is planned for it
  Index answers() const { return prompts * group; }
  Index length() const { return prompt_tokens + tokens; }  // of a prompt with its answer
};

// Kernel launches and traffic of a pass.
struct CountedPass {
  LaunchCounts launches;
  std::vector<CommunicatorTraffic> traffic;
};

// Passes to count: a prompt with the first tokens of `group` answers, and decoding with each number of sequences and of past tokens.
struct WantedPasses {
  Index prompt = 1, group = 1;
  std::vector<Index> sequences, past;
  bool exact = false;
};

struct GenerationRun {
  CountedPass prompt, copy;                               // copy: of the state of a prompt to one answer; nothing without a group
  std::map<std::pair<Index, Index>, CountedPass> decode;  // by sequences and past tokens
  std::map<Index, GeneratorBytes> bytes;                  // by capacity in sequences: memory of the prompt and of the largest passes
};

// Cache of dry runs of passes, each of which represents all ranks that do the same work, in this and in other layouts. For one model and one kind of
// prompts: WantedPasses may differ in the numbers of sequences only.
class GenerationRuns {
 public:
  // Passes of the rank at a position of the layout of generation.
  const GenerationRun& of(const ModelConfig&, const GenerationPlace&, const GeneratorCapacity&, const WantedPasses&, int position);
  std::size_t count() const { return runs_.size(); }

 private:
  std::map<std::string, GenerationRun> runs_;
};

class GenerationTimes {
 public:
  // `runs`: cache of dry runs of this model with such answers; null: none is shared.
  GenerationTimes(const ModelConfig&, const GenerationPlace&, const GeneratorCapacity&, const AnswerCounts&, bool exact, const PassMachine&,
                  GenerationRuns* runs = nullptr);

  double prompt() const { return prompt_; }  // seconds to read a prompt and to copy its state to the slots of its answers
  // Seconds of a pass that decodes a token of `sequences` sequences with `past` tokens each.
  double decode(Index sequences, double past) const;
  // Seconds of all answers on the data coordinate with the most prompts.
  double seconds() const;
  // By pipeline stage: memory of the rank that needs most, from the passes above. Prompts of other lengths may need more.
  const std::vector<GeneratorBytes>& bytes() const { return bytes_; }

 private:
  void count(const ModelConfig&, int stage, const PassMachine&, GenerationRuns&);
  double turn_seconds(Index sequences, const PassMachine&) const;

  GenerationPlace place_;
  GeneratorCapacity limits_;
  AnswerCounts answers_;
  bool exact_;
  double prompt_ = 0;
  std::vector<Index> sequences_;               // 1, 2, 4, ... and the capacity
  std::array<double, 2> past_ = {};            // two lengths
  std::vector<std::array<double, 2>> passes_;  // seconds of a pass with sequences_[i] sequences at both lengths
  std::vector<GeneratorBytes> bytes_;
};

}  // namespace gyr
