// SPDX-License-Identifier: BSD-3-Clause
// Times the programs of all ranks of a pipeline without a network: each rank walks its own; a computation waits for what was received for it and for
// the weights that are gathered for it, a slot is taken again only when its last message has found its receiver, and a step begins when all ranks
// have come to it and all gradients are summed. Beside what a rank computes, its sums and gathers follow each other.
#pragma once

#include "src/parallel/program.hpp"

namespace gyr {

// Of all chunks of a rank together.
struct TaskCosts {
  double forward = 1, backward_input = 1, backward_weights = 1;
  double transfer = 0;  // between neighbours
  double compute() const { return forward + backward_input + backward_weights; }
};

// Of one rank, for each task of its program: what it computes, or what its send, sum or gather is under way.
struct TaskTimes {
  std::vector<double> seconds;
  BucketPlan buckets = {};  // with which the program is compiled
  bool beside = true;       // sums and gathers advance while it computes; else it makes them itself, and waits for each
};

// When a task is done: of a send, sum or gather, when it is under way. Before it begins its rank waits for messages of its neighbours, then for sums
// of gradients or weights, then, where it is the step, for ranks that are not there yet: seconds.
struct TaskSpan {
  double begin = 0, end = 0;
  double message_wait = 0, bucket_wait = 0, of_others = 0;
};

// A rank's time is busy + waits + what it waits at the end for the others.
struct Simulation {
  double makespan = 0;
  std::vector<std::vector<TaskSpan>> tasks;  // of each rank, for each task of its program
  std::vector<double> busy;                  // of each rank
  std::vector<double> message_wait;          // what it waits for messages of its neighbours
  std::vector<double> bucket_wait;           // ... for sums of gradients, and for weights
};

// The part of a step in which a rank waits, were all stages and thirds of their work equal and transfers free: w / (m + w), where
//   1F1B, GPipe   w = (p - 1) / v, and where p does not divide m and v > 1, what the simulation adds
//   ZB-H1         w = (p - 1) / 3 from p micro-batches on, below that what the simulation says
double bubble_fraction(Schedule, const PipelineShape&);

// Exit::internal naming the tasks that wait for each other where the programs deadlock, and messages that are not received as they were sent.
// Gathers behind the step are those behind the step before: they begin with the program.
Simulation timeline(const std::vector<Program>& programs, const std::vector<TaskTimes>&);
Simulation simulate(const std::vector<Program>& programs, const TaskCosts&);

}  // namespace gyr
