// SPDX-License-Identifier: BSD-3-Clause
// Signs that a policy learns something else than intended (reward hacking, lost variety), found in the metrics of all iterations and
// in the answers of some of them.
#pragma once

#include <string>
#include <vector>

#include "src/samples/policy_run.hpp"
#include "src/samples/sampled_iteration.hpp"
#include "src/samples/statistics.hpp"

namespace gyr {

// Thresholds of the checks.
inline constexpr double least_length_correlation = 0.4;  // magnitude of Pearson's r of reward and length within the prompts
inline constexpr double least_duplicated = 0.25;         // fraction of answers that equal an earlier answer to their prompt
inline constexpr double least_repetition_rise = 0.05;    // rise of the fraction of repeated n-grams over the run
inline constexpr double least_standard_errors = 3;       // of the correlation of length, and of the rise of repetition

// Place of an answer: position of its iteration in the sampled iterations, and its position in there.
struct AnswerPlace {
  std::size_t iteration = 0, answer = 0;
};

// Texts have names of rules in backticks.
struct Suspect {
  std::string title, figure, sentence;
  std::vector<AnswerPlace> evidence;
};

// A check that was made, for a table of all of them.
struct SuspectCheck {
  std::string name, figure, threshold;
  bool found = false;
};

struct SuspectFindings {
  std::vector<Suspect> suspects;  // the most serious first: a rule that is only logged falls while the reward rises
  std::vector<SuspectCheck> checks;
};

// Pearson's r of reward and length, both without the mean of their prompt, and the number of independent pairs.
struct LengthCorrelation {
  double r = 0;  // 0: undefined
  Index pairs = 0;
};
LengthCorrelation length_correlation(const std::vector<SampledIteration>&);

SuspectFindings suspects_of(const PolicyRun&, const std::vector<SampledIteration>&);

}  // namespace gyr
