// SPDX-License-Identifier: BSD-3-Clause
// The programs of all ranks of a pipeline, walked with what their parts, messages, sums and gathers take at least, and what the weights of their
// stages take as they lie there.
#pragma once

#include <list>

#include "src/planner/layouts/replica_times.hpp"
#include "src/planner/layouts/stage_times.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

class ProgramBound {
 public:
  ProgramBound(const RunConfig&, const Cluster&, StageContents&, StageBound&, ReplicaBound&);

  // Weights of the stage that a rank of the pipeline has.
  struct Held {
    const BucketPlan* plan = nullptr;
    struct Travelling {
      double bytes = 0;
      bool of_experts = false;
    };
    std::vector<std::vector<Travelling>> reduced, gathered;  // each transfer of a bucket
    std::vector<double> cleared = {};                        // bytes of a bucket's gradients
    double state = 0;                                        // bytes
  };
  const Held& held_by(const RunConfig&, const Layout&, int stage);
  // Of a step, `held` being of each rank of the pipeline.
  double seconds_of(const EngineConfig&, const LayoutChoice&, const Places&, const std::vector<StageTimes>&, const std::vector<const Held*>&);

 private:
  // Programs of all ranks. Tasks of one kind take the same.
  struct Compiled {
    std::vector<Program> programs;
    std::vector<std::vector<Task>> kinds;   // of each rank
    std::vector<std::vector<int>> kind_of;  // ... each task's
  };
  using Plans = std::vector<const BucketPlan*>;  // of each rank
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
  std::list<BucketPlan> plans_;  // that differ
  std::map<std::tuple<Schedule, int, int, int, Plans>, Compiled> compiled_;
  std::size_t tasks_ = 0;  // of all of these
};

}  // namespace gyr
