// SPDX-License-Identifier: BSD-3-Clause
// Times the programs of all ranks of a pipeline without a network: each rank walks its own; a computation waits for what was received for it,
// and a slot is taken again only when its last message has found its receiver.
#pragma once

#include "src/parallel/program.hpp"

namespace gyr {

// Of all chunks of a rank together.
struct TaskCosts {
  double forward = 1, backward_input = 1, backward_weights = 1;
  double transfer = 0;  // between neighbours
  double compute() const { return forward + backward_input + backward_weights; }
};

struct Simulation {
  double makespan = 0;
  std::vector<double> busy;  // of each rank
};

// The part of a step in which a rank waits, were all stages and thirds of their work equal and transfers free: w / (m + w), where
//   1F1B, GPipe   w = (p - 1) / v, and where p does not divide m and v > 1, what the simulation adds
//   ZB-H1         w = (p - 1) / 3 from p micro-batches on, below that what the simulation says
double idle_part(Schedule, const PipelineShape&);

// Exit::internal naming the tasks that wait for each other where the programs deadlock, and messages that are not received as they were sent.
Simulation simulate(const std::vector<Program>& programs, const TaskCosts&);

}  // namespace gyr
