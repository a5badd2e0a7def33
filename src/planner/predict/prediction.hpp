// SPDX-License-Identifier: BSD-3-Clause
// How long a step takes on a cluster: the programs of all ranks of a pipeline, timed task by task. Replicas are alike, and so are stages of the same
// layers; of ranks that share layers or sequences those at both ends of their axis stand for the others.
#pragma once

#include <functional>
#include <map>

#include "src/planner/predict/memory_taken.hpp"
#include "src/planner/predict/rank_costs.hpp"

namespace gyr {

struct Prediction {
  double seconds = 0;  // of a step
  // Of the rank that computes longest: it computes, waits in computations for transfers among ranks that share layers or sequences and for copies to
  // and from the host, for messages of its neighbours, for sums and gathers over replicas, and the rest, in which others are not done.
  double compute = 0, transfers = 0, copies = 0, messages = 0, buckets = 0, rest = 0;
  int longest = 0;  // stage of that rank
};

// A step as it was walked. Where there are more micro-batches than that takes, those that are left repeat what one group of them after the other
// does.
struct StepTimeline {
  std::vector<Program> programs;  // of each rank of the pipeline
  Simulation walked;
  int micros = 0, micros_left = 0;
  double left = 0, besides = 0;     // seconds of those that are left, and of Cluster::Fit::step: with those walked they come to the step
  std::vector<Prediction> of_rank;  // what each rank's step is made of, `longest` being its stage
  int longest = 0;                  // that computes longest
};

// The dry runs that a prediction is made of, by which several may be: on other clusters, and of other numbers of micro-batches.
class StagePlans {
 public:
  StagePlans(const EngineConfig&, const Layout&);
  // The same with dry runs that other layouts have made, or will use.
  StagePlans(const EngineConfig&, const Layout&, StageRuns&);
  // Costs of the ranks of a pipeline, stage by stage; of a stage that lies on several islands those of the slowest. `counted`: seconds of dry runs on
  // the islands of this cluster that are known already.
  using Counted = std::map<std::pair<const StageRun*, int>, CountedTasks>;
  std::vector<RankCosts> costs(const Cluster&, const Profile* = nullptr, Counted* counted = nullptr) const;
  // Bytes of the rank that takes most memory in a step of so many micro-batches, and its stage.
  struct LargestRank {
    Index bytes = 0;
    int stage = 0;
    Index host = 0;  // bytes swapped, of the rank where these are most
  };
  LargestRank largest_rank(const EngineConfig&) const;
  // What ranks take where they stand.
  using Taken = std::function<void(const Capacity&, const Cluster& island)>;
  void each_rank(const EngineConfig&, const Cluster&, const Taken&) const;
  MemoryTaken taken(const EngineConfig&, const Cluster&) const;
  // Of each stage some positions that stand for all, with their dry runs.
  using Stages = std::vector<std::vector<std::pair<int, std::shared_ptr<const StageRun>>>>;
  const Stages& stages() const { return stages_; }

 private:
  Layout layout_;
  Stages stages_;
};

// Seconds of a step of so many micro-batches on so many pipeline ranks, of which `walk` tells those of few: from one group of them to the next a full
// pipeline does the same.
double extrapolated_step_seconds(int micros, int ranks, const std::function<Simulation(int)>& walk);
bool is_fully_simulated(int micros, int ranks);  // to its end

StepTimeline timeline_of(const StagePlans&, const EngineConfig&, const Layout&, const Cluster&, const Profile* = nullptr,
                         StagePlans::Counted* = nullptr);
// Of the rank that computes longest.
Prediction predict(const StagePlans&, const EngineConfig&, const Layout&, const Cluster&, const Profile* = nullptr, StagePlans::Counted* = nullptr);

}  // namespace gyr
