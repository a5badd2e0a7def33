// SPDX-License-Identifier: BSD-3-Clause
// Facts about every answer of an iteration, and the few answers that a page may show. The rest of the rollouts is not kept, so that the
// memory of a page does not grow with the size of a run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/policy/advantages.hpp"

namespace gyr {

inline constexpr Index repeated_ngram = 3;    // tokens of the n-grams whose repetition is measured
inline constexpr std::size_t shown_each = 3;  // number of best, of worst and of drawn answers that are shown of an iteration

struct AnswerFacts {
  std::int64_t prompt = 0;
  Index sample = 0, length = 0;  // length in tokens
  bool ended = false;
  std::optional<double> reward = {};
  std::vector<std::optional<double>> rewards = {};  // of each rule
  double repeated = 0;                              // fraction 0..1 of its n-grams that occurred before in it
  Index copies = 1;                                 // identical answers to its prompt, itself included
};

struct KeptAnswer {
  Rollout rollout;
  std::vector<double> advantages;  // per answer token
};

struct SampledIteration {
  std::int64_t iteration = 0, version = 0;
  Index group = 1;
  std::vector<std::string> reward_names = {};
  std::vector<AnswerFacts> facts = {};
  std::vector<std::size_t> best = {}, worst = {}, drawn = {};  // positions in facts
  std::size_t longest = 0, shortest = 0, most_repeated = 0, most_copied = 0;
  std::vector<std::size_t> lowest = {};         // by rule: the lowest value among the quarter with the highest rewards
  std::map<std::size_t, KeptAnswer> kept = {};  // all positions that are named above

  // Mean over the answers.
  double repeated() const;
  // Fraction 0..1 of the answers that equal an earlier answer to their prompt.
  double duplicated() const;
};

// `seed` decides about the drawn answers.
SampledIteration sampled(const Rollouts&, const AdvantageRules&, std::uint64_t seed);

}  // namespace gyr
