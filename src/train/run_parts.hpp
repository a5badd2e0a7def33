// SPDX-License-Identifier: BSD-3-Clause
// What all parts of a run work with. It outlives them.
#pragma once

#include "src/job/run_folder.hpp"
#include "src/trace/trace.hpp"
#include "src/train/training_engine.hpp"
#include "src/watch/stop.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

struct RunParts {
  const RunConfig& run;
  const std::string& deck;  // the effective one
  Grid& grid;
  Watch& watch;
  Timers& timers;
  Trace& trace;
  TrainingEngine& engine;
  RunFolder& folder;  // which the first rank has taken
  Walltime walltime;

  bool lead() const { return grid.position() == 0; }
};

}  // namespace gyr
