// SPDX-License-Identifier: BSD-3-Clause
// A finished or running policy training, read from its output folder: the deck, the metrics of each iteration, and the
// iterations whose rollouts are on disk.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/policy/policy_config.hpp"

namespace gyr {

// Metrics of an iteration by name, as in metrics.jsonl: those of its event `iteration`, rewards as "rewards.NAME", and the means
// of those of its optimizer steps. Values that are missing or not finite have no entry.
struct IterationMetrics {
  std::int64_t iteration = 0;
  std::map<std::string, double> values = {};
};

// Values of one metric over the iterations that have it.
struct MetricSeries {
  std::vector<double> at, value;
};

struct PolicyRun {
  std::string name, folder;
  std::string tokenizer = {};  // tokenizer: data.tokenizer of the deck; "": none
  PolicyConfig config = {};
  std::vector<IterationMetrics> iterations = {};  // in ascending order; only those that were not repeated later
  std::vector<std::int64_t> stored = {};          // those of them that have a file of rollouts

  MetricSeries series(const std::string& metric) const;
  // Rules in the order of the deck, and after them the rules that only the metrics name.
  std::vector<std::string> rules() const;
  // Weight of a rule in the reward; NaN if the deck does not have it.
  double weight(const std::string& rule) const;
};

// Exit::missing without metrics.jsonl, deck.yaml or rollouts; Exit::data if the metrics contain no iteration; Exit::config for
// a deck that cannot be read.
PolicyRun read_policy_run(const std::filesystem::path& output);

// `count` of the iterations, evenly chosen, with the first and the last one; all of them if there are no more.
std::vector<std::int64_t> chosen_iterations(const std::vector<std::int64_t>& stored, Index count);

}  // namespace gyr
