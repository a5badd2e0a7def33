// SPDX-License-Identifier: BSD-3-Clause
// What the tasks of a rank take on a cluster, from what a dry run has counted of them.
#pragma once

#include <map>
#include <tuple>

#include "src/engine/plan.hpp"
#include "src/parallel/simulator.hpp"
#include "src/planner/kernel_times.hpp"
#include "src/planner/ranks.hpp"

namespace gyr {

struct TaskCost {
  double compute = 0, transfer = 0;  // seconds; of a computation: of the transfers in it that it waits for
  Traffic message = {};              // of a send, which costs what the way to its peer does
  double seconds() const { return compute + transfer; }
};

class RankCosts {
 public:
  // Of a rank at this position that has the layers of the one that was planned, of at least three micro-batches or as many as a step has.
  RankCosts(const RankPlan&, const EngineConfig& planned, const Layout&, int position, const Cluster&, const Profile* = nullptr);

  // Each task takes what it takes on the slower of both: ranks of a tensor or context axis wait for each other in every layer.
  void join(const RankCosts&);
  // Of a program of the same rank, of however many micro-batches.
  TaskTimes times_of(const Program&) const;
  const BucketPlan& buckets() const { return buckets_; }
  // What the computations of a whole program take.
  TaskCost sum_of(const Program&) const;

 private:
  enum class Place { first, between, last };  // of a micro-batch in the step
  using Key = std::tuple<Op, int, Index, Index, Payload, Place>;
  static Key key_of(const Task&, int micros);
  const TaskCost& cost_of(const Task&, int micros) const;

  std::map<Key, TaskCost> costs_;
  BucketPlan buckets_;
  std::vector<int> pipeline_;  // its ranks
  int own_;
  Cluster cluster_;
};

}  // namespace gyr
