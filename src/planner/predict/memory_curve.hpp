// SPDX-License-Identifier: BSD-3-Clause
// Activation bytes of a rank over the time of a step: the activations that micro-batches in flight keep for their
// backward, and the temporary memory of the running task.
#pragma once

#include "src/parallel/simulator.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

struct MemoryMoment {
  double begin = 0, end = 0;   // seconds since the start of the step
  Index kept = 0, during = 0;  // bytes after the task, and peak bytes during the task
  int micros = 0;              // micro-batches in flight after the task, over all chunks of the rank
};

// One entry per task of a micro-batch in `program`. `program` may have any number of micro-batches. The bytes come from
// the dry run of the rank, because tasks of the same kind take the same memory; `times` are the simulated times of the
// tasks.
std::vector<MemoryMoment> memory_curve(const StageRun&, const Program& program, const std::vector<TaskSpan>& times);

}  // namespace gyr
