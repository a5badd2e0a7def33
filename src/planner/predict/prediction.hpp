// SPDX-License-Identifier: BSD-3-Clause
// Predicts the time of a step on a cluster by simulating the programs of all pipeline ranks task by task. Data-parallel
// replicas are assumed alike, and so are stages with the same layers. The first and the last rank of a tensor-parallel
// or context-parallel group represent the group.
#pragma once

#include <functional>
#include <map>

#include "src/planner/predict/memory_taken.hpp"
#include "src/planner/predict/rank_costs.hpp"

namespace gyr {

struct Prediction {
  double seconds = 0;  // predicted seconds per step
  // Breakdown of the rank with the longest computation: computation; exposed communication with tensor- and
  // context-parallel ranks; exposed host copies; waiting for pipeline messages; waiting for gradient reductions and
  // weight gathers over replicas; and the remainder, such as waiting for slower ranks.
  double compute = 0, transfers = 0, copies = 0, messages = 0, buckets = 0, rest = 0;
  int longest = 0;  // index of that rank on the pipeline axis
};

// Timeline of a simulated step. If the step has more micro-batches than are simulated, the time of the remaining ones
// is extrapolated: each further group of micro-batches takes the same time.
struct StepTimeline {
  std::vector<Program> programs;  // one program per pipeline rank
  Simulation walked;
  int micros = 0, micros_left = 0;  // simulated micro-batches, and micro-batches that are extrapolated
  // seconds of the extrapolated micro-batches, and Cluster::Fit::step; the step is the sum of these and the simulated
  // time
  double left = 0, besides = 0;
  std::vector<Prediction> of_rank;  // breakdown of each pipeline rank; `longest` is its stage
  int longest = 0;                  // index of the pipeline rank with the longest computation
};

// Dry runs of all stages of a layout. They can be reused to predict steps on other clusters and with other micro-batch
// counts.
class StagePlans {
 public:
  StagePlans(const EngineConfig&, const Layout&);
  // The same, reusing dry runs of other layouts and adding new ones to the cache.
  StagePlans(const EngineConfig&, const Layout&, StageRuns&);
  // Costs of the pipeline ranks, stage by stage. A stage on several islands gets the cost of its slowest rank.
  // `counted`: cache of task seconds by dry run and island of this cluster.
  using Counted = std::map<std::pair<const StageRun*, int>, CountedTasks>;
  std::vector<RankCosts> costs(const Cluster&, const Profile* = nullptr, Counted* counted = nullptr) const;
  // Memory and stage of the rank that takes the most memory in a step with config.micros micro-batches.
  struct LargestRank {
    Index bytes = 0;
    int stage = 0;
    Index host = 0;  // offloaded bytes of the rank that offloads most
  };
  LargestRank largest_rank(const EngineConfig&) const;
  // Visits every representative rank with its memory and its island.
  using Taken = std::function<void(const Capacity&, const Cluster& island)>;
  void each_rank(const EngineConfig&, const Cluster&, const Taken&) const;
  MemoryTaken taken(const EngineConfig&, const Cluster&) const;
  // For each stage: positions that represent all its ranks, with their dry runs.
  using Stages = std::vector<std::vector<std::pair<int, std::shared_ptr<const StageRun>>>>;
  const Stages& stages() const { return stages_; }

 private:
  Layout layout_;
  Stages stages_;
};

// Seconds of a step with `micros` micro-batches on `ranks` pipeline ranks. `walk` simulates a smaller number of
// micro-batches. The rest is extrapolated, because a full pipeline takes the same time for each further group of
// micro-batches.
double extrapolated_step_seconds(int micros, int ranks, const std::function<Simulation(int)>& walk);
bool is_fully_simulated(int micros, int ranks);  // true if all micro-batches are simulated

StepTimeline timeline_of(const StagePlans&, const EngineConfig&, const Layout&, const Cluster&, const Profile* = nullptr,
                         StagePlans::Counted* = nullptr);
// Prediction of the rank with the longest computation.
Prediction predict(const StagePlans&, const EngineConfig&, const Layout&, const Cluster&, const Profile* = nullptr, StagePlans::Counted* = nullptr);

}  // namespace gyr
