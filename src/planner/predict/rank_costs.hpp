// SPDX-License-Identifier: BSD-3-Clause
// Time of each task of a pipeline rank on a cluster, derived from the counts of a dry run.
#pragma once

#include <map>
#include <tuple>

#include "src/parallel/simulator.hpp"
#include "src/planner/machine/kernel_times.hpp"
#include "src/planner/machine/ranks.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

struct TaskCost {
  double compute = 0, transfer = 0;  // seconds; transfer: of a communication task, or the exposed communication inside a computation
  double copies = 0;                 // seconds of exposed copies to and from the host
  Traffic message = {};              // calls and bytes of a send, whose time depends on the link to the peer
  double seconds() const { return compute + transfer + copies; }
};

// Properties of a task that determine its cost. Tasks with equal keys cost the same.
class TaskKey {
 public:
  TaskKey(const Task&, int micros);
  auto operator<=>(const TaskKey&) const = default;

 private:
  enum class Place { first, between, last };  // position of the task's micro-batch in the step
  std::tuple<Op, int, Index, Index, Payload, Place> key_;
};

// Communication that overlaps with computation.
struct OverlapCount {
  int communicator;  // index of the communicator, in the order of Grid::visit
  Operation operation;
  Index bytes;        // bytes per transfer
  Index times;        // number of such transfers
  double overlapped;  // seconds of computation that overlap with one transfer
};
std::vector<OverlapCount> hidden_of(const TaskCount&, DType precision, const Cluster&, const Profile*);
// Seconds of communication that are hidden by computation. `one`: seconds of one transfer; `overlapped`: seconds of
// computation that overlap with it.
double seconds_hidden(const OverlapCount&, double one, double overlapped, const Cluster&);

// Compute seconds and communicated bytes of the tasks of a dry run, independent of where the ranks are placed.
struct CountedTasks {
  CountedTasks(const StageRun&, const Cluster&, const Profile* = nullptr);

  struct Count {
    double compute = 0;
    double copying = 0, hides = 0;  // seconds of copies to and from the host, and seconds of computation that can overlap with them
    double copies() const { return std::max(0.0, copying - hides); }  // exposed seconds of copies
    Traffic message = {};
    std::vector<std::pair<int, TrafficCount::Line>> transfers = {};  // index in CountedTasks::communicators, and the transfer
    std::vector<OverlapCount> hidden = {};                           // those of the transfers that overlap with computation
  };
  std::map<TaskKey, Count> counts;
  std::vector<TaskKey> gathers;  // keys of the weight gathers after the optimizer step
  TaskKey step;
  Count rest;  // work of a step outside the tasks of its program
  std::vector<std::string> communicators;
  BucketPlan buckets;
};

class RankCosts {
 public:
  // Costs of a rank at this position that does the counted work.
  RankCosts(const CountedTasks&, const Layout&, int position, const Cluster&);

  // Sets each task to its cost on the slower of the two ranks. Ranks of a tensor-parallel or context-parallel group
  // wait for each other in every layer.
  void join(const RankCosts&);
  // Task times for a program of the same rank, with any number of micro-batches.
  TaskTimes times_of(const Program&) const;
  const BucketPlan& buckets() const { return buckets_; }
  // Summed cost of all computations of a program.
  TaskCost sum_of(const Program&) const;

 private:
  const TaskCost& cost_of(const Task&, int micros) const;

  std::map<TaskKey, TaskCost> costs_;
  BucketPlan buckets_;
  std::vector<int> pipeline_;  // rank at each stage of the pipeline that this rank belongs to
  int local_rank_;
  Cluster cluster_;
};

}  // namespace gyr
