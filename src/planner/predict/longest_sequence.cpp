// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/longest_sequence.hpp"

#include "src/config/bounds.hpp"
#include "src/planner/predict/prediction.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

bool fits(const RunConfig& run, int ranks, Index length, const ActivationChoice& choice, const MemoryLimits& limits) {
  try {
    const MemoryLimits most = taken(run, ranks, length, choice);
    return most.device <= limits.device && most.host <= limits.host;
  } catch (const Error& e) {
    if (e.code != Exit::config) throw;
    return false;
  }
}

}  // namespace

Index unit_of_length(const RunConfig& run) { return run.train.seq_length % 8 == 0 ? run.train.seq_length / 8 : run.train.seq_length; }

MemoryLimits taken(RunConfig run, int ranks, Index length, const ActivationChoice& choice) {
  run.recompute = choice.recompute, run.offload = choice.offload, run.train.seq_length = length;
  check_bounds(run, SettingsText([](const std::vector<std::string>&) { return std::string(); }));
  const Layout layout = layout_of(run, ranks);
  const EngineConfig config = engine_config(run, layout);
  const StagePlans::LargestRank largest_rank = StagePlans(config, layout).largest_rank(config);
  return {double(largest_rank.bytes), double(largest_rank.host)};
}

LongestSequence longest_sequence(const RunConfig& run, int ranks, const ActivationChoice& choice, const MemoryLimits& limits, Index most_tried) {
  const Index unit = unit_of_length(run);
  const auto fits_memory = [&](Index units) { return units * unit <= most_tried && fits(run, ranks, units * unit, choice, limits); };
  Index most = 0, beyond = 1;
  while (fits_memory(beyond)) most = beyond, beyond *= 2;
  while (beyond - most > 1) {
    const Index between = most + (beyond - most) / 2;
    (fits_memory(between) ? most : beyond) = between;
  }
  return {most * unit, beyond * unit > most_tried};
}

}  // namespace gyr
