// SPDX-License-Identifier: BSD-3-Clause
// What the tasks of a rank take on a cluster, from what a dry run has counted of them.
#pragma once

#include <map>
#include <tuple>

#include "src/parallel/simulator.hpp"
#include "src/planner/machine/kernel_times.hpp"
#include "src/planner/machine/ranks.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

struct TaskCost {
  double compute = 0, transfer = 0;  // seconds; of a computation: of the transfers in it that it waits for
  double copies = 0;                 // ... and of copies to and from the host
  Traffic message = {};              // of a send, which costs what the way to its peer does
  double seconds() const { return compute + transfer + copies; }
};

// By what a task is told from others that take something else.
class TaskKey {
 public:
  TaskKey(const Task&, int micros);
  auto operator<=>(const TaskKey&) const = default;

 private:
  enum class Place { first, between, last };  // of a micro-batch in the step
  std::tuple<Op, int, Index, Index, Payload, Place> key_;
};

// A transfer that is under way while something is computed.
struct OverlapCount {
  int communicator;  // its place
  Operation operation;
  Index bytes;  // of one
  Index times;
  double beside;  // seconds of what is computed meanwhile
};
std::vector<OverlapCount> hidden_of(const TaskCount&, DType precision, const Cluster&, const Profile*);
// Seconds of it that nobody waits for: of one that takes so long, beside so many.
double seconds_hidden(const OverlapCount&, double one, double beside, const Cluster&);

// What a dry run's tasks compute on a device, in seconds, and hand over, in bytes: wherever the ranks stand.
struct CountedTasks {
  CountedTasks(const StageRun&, const Cluster&, const Profile* = nullptr);

  struct Count {
    double compute = 0;
    double copying = 0, hides = 0;                                    // seconds of copies to and from the host, and of what they may be made beside
    double copies() const { return std::max(0.0, copying - hides); }  // that are waited for
    Traffic message = {};
    std::vector<std::pair<int, TrafficCount::Line>> transfers = {};  // by place of the communicator
    std::vector<OverlapCount> hidden = {};                           // of them
  };
  std::map<TaskKey, Count> counts;
  std::vector<TaskKey> gathers;  // behind the step
  TaskKey step;
  Count rest;  // what a step takes besides its tasks
  std::vector<std::string> communicators;
  BucketPlan buckets;
};

class RankCosts {
 public:
  // Of a rank at this position that would do what was counted.
  RankCosts(const CountedTasks&, const Layout&, int position, const Cluster&);

  // Each task takes what it takes on the slower of both: ranks of a tensor or context axis wait for each other in every layer.
  void join(const RankCosts&);
  // Of a program of the same rank, of however many micro-batches.
  TaskTimes times_of(const Program&) const;
  const BucketPlan& buckets() const { return buckets_; }
  // What the computations of a whole program take.
  TaskCost sum_of(const Program&) const;

 private:
  const TaskCost& cost_of(const Task&, int micros) const;

  std::map<TaskKey, TaskCost> costs_;
  BucketPlan buckets_;
  std::vector<int> pipeline_;  // its ranks
  int own_;
  Cluster cluster_;
};

}  // namespace gyr
