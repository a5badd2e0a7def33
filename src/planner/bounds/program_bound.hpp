// SPDX-License-Identifier: BSD-3-Clause
// Lower bound of a step: the programs of all pipeline ranks are simulated with lower bounds for their parts (embedding,
// layers, head), messages, gradient reductions and weight gathers. The weights of each stage are those of the real
// placement.
#pragma once

#include <list>

#include "src/planner/layouts/replica_times.hpp"
#include "src/planner/layouts/stage_times.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

class ProgramBound {
 public:
  ProgramBound(const RunConfig&, const Cluster&, StageContents&, StageBound&, ReplicaBound&);

  // Weights held by a pipeline rank, as far as its program depends on them.
  struct Held {
    const BucketPlan* plan = nullptr;
    struct Travelling {
      double bytes = 0;
      bool of_experts = false;
    };
    std::vector<std::vector<Travelling>> reduced, gathered;  // transfers of each bucket: its gradient reductions; its weight gathers
    std::vector<double> cleared = {};                        // for each bucket: bytes of gradients set to zero
    double state = 0;                                        // bytes of weights, gradients and optimizer states
  };
  const Held& held_by(const RunConfig&, const Layout&, int stage);
  // Lower bound of the step in seconds. The last argument has one entry per pipeline rank.
  double seconds_of(const EngineConfig&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const std::vector<const Held*>&);

 private:
  // Compiled programs of all pipeline ranks. Tasks of the same kind take the same time.
  struct Compiled {
    std::vector<Program> programs;
    std::vector<std::vector<Task>> kinds;   // distinct tasks of each rank
    std::vector<std::vector<int>> kind_of;  // index into `kinds` for each task of each rank
  };
  using Plans = std::vector<const BucketPlan*>;  // bucket plans, one per rank
  const Compiled& compiled(Schedule, const PipelineShape&, const Plans&);
  const BucketPlan* known_plan(const BucketPlan&);
  Simulation walk(const Compiled&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const std::vector<const Held*>&);
  TaskTimes times_of(const Compiled&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const Held&, int rank);
  double seconds_of(const Task&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const Held&, int rank);
  double seconds_of(Operation, const std::vector<Held::Travelling>&, const Places&, int rank) const;

  const RunConfig& run_;
  const Cluster& cluster_;
  StageContents& contents_;
  StageBound& stages_;
  ReplicaBound& replicas_;
  std::map<std::string, Held> held_;
  std::list<BucketPlan> plans_;  // distinct bucket plans
  std::map<std::tuple<Schedule, int, int, int, Plans>, Compiled> compiled_;
  std::size_t tasks_ = 0;  // number of tasks of all programs in compiled_
};

}  // namespace gyr
