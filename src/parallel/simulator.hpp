// SPDX-License-Identifier: BSD-3-Clause
// Times the programs of all ranks of a pipeline without a network. Each rank executes its program. A computation waits
// for its received message and for its gathered weights. A slot is reused only after the receiver has posted the
// receive for the slot's last message. The optimizer step begins when all ranks have reached it and all gradients are
// reduced. Reductions and gathers of a rank run one after another, overlapped with its computations.
#pragma once

#include "src/parallel/program.hpp"

namespace gyr {

// Costs of tasks, for all chunks of a rank together.
struct TaskCosts {
  double forward = 1, backward_input = 1, backward_weights = 1;
  double transfer = 0;  // cost of a message between neighbouring pipeline ranks
  double compute() const { return forward + backward_input + backward_weights; }
};

// Seconds that each task of a rank's program takes: its computation, or the transfer of its send, reduction or gather.
struct TaskTimes {
  std::vector<double> seconds;
  BucketPlan buckets = {};  // bucket plan with which the program was compiled
  bool overlaps = true;     // reductions and gathers overlap computations; false: the rank executes each and waits for it
};

// Begin and end of a task, in seconds; for a send, reduction or gather, those of its transfer. Before it begins, its
// rank waits message_wait seconds for messages of its neighbours, bucket_wait for gradient reductions or weights, and,
// for the optimizer step, peer_wait for other ranks.
struct TaskSpan {
  double begin = 0, end = 0;
  double message_wait = 0, bucket_wait = 0, peer_wait = 0;
};

// Times in seconds. The time of a rank is busy + waits + its wait at the end for the other ranks.
struct Simulation {
  double makespan = 0;
  std::vector<std::vector<TaskSpan>> tasks;  // begin, end and waits of each task, by rank
  std::vector<double> busy;                  // by rank: seconds of computation
  std::vector<double> message_wait;          // by rank: time waited for messages of its neighbours
  std::vector<double> bucket_wait;           // by rank: time waited for gradient reductions and for weights
};

// Pipeline bubble: the fraction of a step that a rank waits, if all stages and thirds of their work are equal and transfers are free. It is
// w / (m + w) with
//   p pipeline ranks, v chunks per rank, m micro-batches
//   1F1B, GPipe   w = (p - 1) / v; if p does not divide m and v > 1, w is simulated
//   ZB-H1         w = (p - 1) / 3 from p micro-batches on; below that, w is simulated
double bubble_fraction(Schedule, const PipelineShape&);

// Exit::internal if the programs deadlock, naming the tasks that wait for each other, or if messages are not received
// as they were sent. Gathers after the step stand for those after the previous step: they begin with the program.
Simulation timeline(const std::vector<Program>& programs, const std::vector<TaskTimes>&);
Simulation simulate(const std::vector<Program>& programs, const TaskCosts&);

}  // namespace gyr
