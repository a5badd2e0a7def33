// SPDX-License-Identifier: BSD-3-Clause
// Work, traffic and memory of each task of a program in a dry run. Tasks equal to an earlier one reuse its counts and
// are not executed again.
// Live bytes are summed over all slots and scratch.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "src/parallel/grid.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

// Live bytes of a micro-batch: the maximum during a task (`most`), and the bytes that remain after it (`after`).
struct Alive {
  Index most = 0, after = 0;
};

// Computation and communication of one task.
struct TaskCount {
  std::vector<Work> work = {};             // calls, FLOPs and bytes of the task, by kernel
  std::vector<TrafficCount> traffic = {};  // traffic of each communicator, in the order of Grid::visit
  LaunchCounts launches = {};
  Alive alive = {};
  std::vector<std::pair<int, OverlappedTransfer>> hidden = {};  // transfers overlapped with computation, by index of the communicator
};

// Counts of all tasks of a program up to its optimizer step. Equal tasks share one entry of `counts`.
struct TaskCounts {
  std::vector<TaskCount> counts;
  std::vector<int> of_task;  // for each task the index of its entry in counts
};

class DryCount {
 public:
  DryCount(Device&, Grid&, const Program&);

  // All micro-batches between the first and the last cost the same. The second is executed and counted, and its count
  // is reused for the others. The last one differs: it ends with gradient reductions.
  void take(const Task&, const std::function<Alive()>& run);
  Index most_alive() const { return most_alive_; }
  TaskCounts& counts() { return counts_; }

 private:
  TaskCount so_far();  // work and traffic counted so far
  static TaskCount difference(TaskCount now, const TaskCount& before);
  int counted(const std::function<Alive()>& run);            // executes a task and returns the index of its count
  std::vector<std::pair<int, OverlappedTransfer>> hidden();  // overlapped transfers of the task that was just executed
  int place_of(const void* communicator);
  void again(const TaskCount&);
  void add(const Task&, const Alive&);

  Device& device_;
  Grid& grid_;
  int micros_;
  TaskCounts counts_;
  // Keys: operation, chunk, first part and payload of a task. Value: index in counts_.counts of its count, taken in
  // micro-batch 1 and reused for later micro-batches.
  std::map<std::tuple<Op, int, Index, Payload>, int> counted_;
  std::vector<std::vector<Index>> alive_;  // live bytes of each slot, by chunk and slot index
  Index most_alive_ = 0;
};

}  // namespace gyr
