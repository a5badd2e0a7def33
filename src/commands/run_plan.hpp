// SPDX-License-Identifier: BSD-3-Clause
// A planned run: its layout, and the dry run of one rank at every pipeline, context and tensor coordinate.
// Data-parallel replicas are identical, so only data coordinate 0 is planned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/config/placed_models.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/train/policy_generation.hpp"

namespace gyr {

// Name and text of each line at the top of a report.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Planned ranks of a layout: one for each position whose data coordinate is 0, in order.
const RankPlan& plan_at(const std::vector<RankPlan>&, const Layout&, int position);

// A further model of a run, which scores the samples of a step.
struct FurtherPlan {
  explicit FurtherPlan(PlacedModel);

  PlacedModel placed;
  EngineConfig config;
  std::vector<RankPlan> ranks;
};

struct RunPlan {
  RunPlan(RunConfig, int ranks);

  RunConfig run;
  Layout layout;
  EngineConfig config;
  std::vector<FurtherPlan> further;
  // Work and traffic are those of the trained model. Memory includes the further models: where replicas differ, because only
  // some of them hold such a model, that of the replica that needs most.
  std::vector<RankPlan> ranks;
  std::optional<GenerationPlace> generation = {};  // of policy training
  // Ranks that only generate: one for each stage and tensor-parallel rank of generation, because data-parallel ranks need the same. Their work
  // is left out, and the working memory is that of all passes together.
  std::vector<RankPlan> generators = {};
  const RankPlan& of(int position) const { return plan_at(ranks, layout, position); }
  const RankPlan& largest_rank() const;  // the rank that uses most memory
  const RankPlan& slowest() const;       // the rank that executes most FLOPs
};

}  // namespace gyr
