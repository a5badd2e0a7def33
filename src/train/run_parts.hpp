// SPDX-License-Identifier: BSD-3-Clause
// Components that all parts of a run share. They outlive these parts.
#pragma once

#include "src/job/run_folder.hpp"
#include "src/trace/trace.hpp"
#include "src/train/training_engine.hpp"
#include "src/watch/stop.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

inline Scoring scoring_of(const RunConfig& run) {
  if (run.policy) return run.policy->has_critic() ? Scoring::critic : Scoring::rollouts;
  return run.models.empty() ? Scoring::none : Scoring::first;
}

struct RunParts {
  const RunConfig& run;
  const std::string& deck;  // YAML text of the effective deck, with all defaults
  Grid& grid;
  Watch& watch;
  Timers& timers;
  Trace& trace;
  TrainingEngine& engine;
  RunFolder& folder;  // output folder of the run, locked by the first rank
  Walltime walltime;

  bool lead() const { return grid.position() == 0; }
};

}  // namespace gyr
