// SPDX-License-Identifier: BSD-3-Clause
// Bytes of activations on a rank while a step goes on: what micro-batches that are under way keep for their backwards, and what the task that is
// being done takes besides.
#pragma once

#include "src/parallel/simulator.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

struct MemoryMoment {
  double begin = 0, end = 0;   // seconds of the step
  Index kept = 0, during = 0;  // bytes behind the task, and at most while it is done
  int micros = 0;              // under way behind it, of all chunks together
};

// A moment for each task of a micro-batch in `program`, which is the rank's of whatever number of micro-batches, with the times of a rank of its
// stage that is walked: its tasks of micro-batches are the same.
std::vector<MemoryMoment> memory_curve(const StageRun&, const Program& program, const std::vector<TaskSpan>& times);

}  // namespace gyr
