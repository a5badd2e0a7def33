// SPDX-License-Identifier: BSD-3-Clause
// What the tasks of a program take in a dry run: those that repeat are counted instead of repeated, and of slots and scratch it is known how
// many bytes are alive at once, whatever slot they are in.
#pragma once

#include <functional>
#include <map>
#include <tuple>

#include "src/parallel/grid.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

// Bytes of a micro-batch alive at most during a task, and behind it.
struct Alive {
  Index most = 0, behind = 0;
};

class DryCount {
 public:
  DryCount(Device&, Grid&, const Program&);

  // All micro-batches but the first and the last, which ends with reductions, take the same: the second is run and counted, and the count
  // stands for the others.
  void take(const Task&, const std::function<Alive()>& run);
  Index most_alive() const { return most_alive_; }

 private:
  // Work and traffic so far, or of a task.
  struct Count {
    std::vector<Work> work;
    std::vector<TrafficCount> traffic;  // of every communicator
    Alive alive = {};
  };
  Count so_far();
  static Count difference(Count now, const Count& before);
  void again(const Count&);
  void add(const Task&, const Alive&);

  Device& device_;
  Grid& grid_;
  int micros_;
  std::map<std::tuple<Op, int, Index, Payload>, Count> counted_;  // of micro-batch 1, by task
  std::vector<std::vector<Index>> alive_;                         // by chunk and slot
  Index most_alive_ = 0;
};

}  // namespace gyr
