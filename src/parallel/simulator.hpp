// SPDX-License-Identifier: BSD-3-Clause
// Times the programs of all ranks of a pipeline without a network: each rank walks its own; a computation waits for what was received for it,
// and a slot is taken again only when its last message has found its receiver.
#pragma once

#include "src/parallel/program.hpp"

namespace gyr {

struct TaskCosts {
  double forward = 1, backward = 2;  // of all chunks of a rank together; split backwards: half each
  double transfer = 0;               // between neighbours
};

struct Simulation {
  double makespan = 0;
  std::vector<double> busy;  // of each rank
};

// The part of a step in which a rank waits, were all stages equal and transfers free, of one_f_one_b or, with several chunks, of interleaved:
// (p - 1) / v / (m + (p - 1) / v), and where p does not divide m, what the simulation adds.
double idle_part(const PipelineShape&);

// Exit::internal naming the tasks that wait for each other where the programs deadlock, and messages that are not received as they were sent.
Simulation simulate(const std::vector<Program>& programs, const TaskCosts&);

}  // namespace gyr
