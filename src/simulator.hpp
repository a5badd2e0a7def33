// SPDX-License-Identifier: BSD-3-Clause
// Times the schedules of all ranks of a pipeline without a network: each rank walks its list, a receive waits for the facing send.
#pragma once

#include "src/schedule.hpp"

namespace gyr {

struct TaskCosts {
  double forward = 1, backward = 2;  // of one chunk
  double transfer = 0;               // between neighbours
};

struct Simulation {
  double makespan = 0;
  std::vector<double> busy;  // of each rank
};

// Exit::internal naming the tasks that wait for each other where the lists deadlock.
Simulation simulate(const PipelineShape&, const std::vector<std::vector<Task>>& lists, const TaskCosts&);

}  // namespace gyr
