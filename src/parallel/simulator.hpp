// SPDX-License-Identifier: BSD-3-Clause
// Times the schedules of all ranks of a pipeline without a network: each rank walks its list, a receive waits for the facing send.
#pragma once

#include "src/parallel/schedule.hpp"

namespace gyr {

struct TaskCosts {
  double forward = 1, backward = 2;  // of one chunk
  double transfer = 0;               // between neighbours
};

struct Simulation {
  double makespan = 0;
  std::vector<double> busy;  // of each rank
};

// The part of a step of one_f_one_b in which a rank waits, were all stages equal and transfers free: (p - 1) / (m + p - 1).
double idle_part(const PipelineShape&);

// Exit::internal naming the tasks that wait for each other where the lists deadlock.
Simulation simulate(const PipelineShape&, const std::vector<std::vector<Task>>& lists, const TaskCosts&);

}  // namespace gyr
