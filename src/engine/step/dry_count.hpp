// SPDX-License-Identifier: BSD-3-Clause
// What the tasks of a program take in a dry run: those that repeat are counted instead of repeated, and of slots and scratch it is known how
// many bytes are alive at once, whatever slot they are in.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "src/parallel/grid.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

// Bytes of a micro-batch alive at most during a task, and behind it.
struct Alive {
  Index most = 0, behind = 0;
};

// What a task computes and hands over.
struct TaskCount {
  std::vector<Work> work = {};             // by kernel
  std::vector<TrafficCount> traffic = {};  // of every communicator, in the order in which the grid visits them
  LaunchCounts launches = {};
  Alive alive = {};
  std::vector<std::pair<int, OverlappedTransfer>> hidden = {};  // by place of the communicator
};

// Of all tasks of a program up to its step: those that take the same share a count.
struct TaskCounts {
  std::vector<TaskCount> counts;
  std::vector<int> of_task;  // place of each task's count
};

class DryCount {
 public:
  DryCount(Device&, Grid&, const Program&);

  // All micro-batches but the first and the last, which ends with reductions, take the same: the second is run and counted, and the count
  // stands for the others.
  void take(const Task&, const std::function<Alive()>& run);
  Index most_alive() const { return most_alive_; }
  TaskCounts& counts() { return counts_; }

 private:
  TaskCount so_far();  // work and traffic alone
  static TaskCount difference(TaskCount now, const TaskCount& before);
  int counted(const std::function<Alive()>& run);            // place of the count of what is run
  std::vector<std::pair<int, OverlappedTransfer>> hidden();  // in it
  int place_of(const void* communicator);
  void again(const TaskCount&);
  void add(const Task&, const Alive&);

  Device& device_;
  Grid& grid_;
  int micros_;
  TaskCounts counts_;
  std::map<std::tuple<Op, int, Index, Payload>, int> counted_;  // of micro-batch 1, by task: place of its count
  std::vector<std::vector<Index>> alive_;                       // by chunk and slot
  Index most_alive_ = 0;
};

}  // namespace gyr
