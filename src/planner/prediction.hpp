// SPDX-License-Identifier: BSD-3-Clause
// How long a step takes on a cluster: the programs of all ranks of a pipeline, timed task by task. Replicas are alike, and so are stages of the same
// layers; of ranks that share layers or sequences those at both ends of their axis stand for the others.
#pragma once

#include <map>
#include <string>

#include "src/planner/rank_costs.hpp"

namespace gyr {

struct Prediction {
  double seconds = 0;  // of a step
  // Of the rank that computes longest: it computes, waits in computations for transfers among ranks that share layers or sequences, for messages of
  // its neighbours, for sums and gathers over replicas, and the rest, in which others are not done.
  double compute = 0, transfers = 0, messages = 0, buckets = 0, rest = 0;
  int longest = 0;  // stage of that rank
};

// The dry runs that a prediction is made of, by which several may be: on other clusters, and of other numbers of micro-batches.
class StagePlans {
 public:
  StagePlans(const EngineConfig&, const Layout&);
  // Costs of the ranks of a pipeline, stage by stage.
  std::vector<RankCosts> costs(const Cluster&, const Profile* = nullptr) const;
  const EngineConfig& planned() const { return planned_; }

 private:
  std::string signature(int stage) const;  // stages with the same one take the same

  EngineConfig planned_;
  Layout layout_;
  std::map<std::string, std::vector<RankPlan>> plans_;  // of some ranks of each kind of stage
};

Prediction predict(const StagePlans&, const EngineConfig&, const Layout&, const Cluster&, const Profile* = nullptr);

}  // namespace gyr
