// SPDX-License-Identifier: BSD-3-Clause
// A planned run: its layout, and the dry run of one rank at every pipeline, context and tensor coordinate.
// Data-parallel replicas are identical, so only data coordinate 0 is planned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr {

// Name and text of each line at the top of a report.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct RunPlan {
  RunPlan(RunConfig, int ranks);

  RunConfig run;
  Layout layout;
  EngineConfig config;
  std::vector<RankPlan> ranks;
  const RankPlan& of(int position) const;
  const RankPlan& largest_rank() const;  // the rank that uses most memory
  const RankPlan& slowest() const;       // the rank that executes most FLOPs
};

}  // namespace gyr
