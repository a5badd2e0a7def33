// SPDX-License-Identifier: BSD-3-Clause
// A run that is planned: its layout, and the dry run of one rank of every pipeline, context and tensor coordinate, which stands for all its data
// replicas: they take the same.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr {

// What people read first, each with its name.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct RunPlan {
  RunPlan(RunConfig, int ranks);

  RunConfig run;
  Layout layout;
  EngineConfig config;
  std::vector<RankPlan> ranks;
  const RankPlan& of(int position) const;
  const RankPlan& largest_rank() const;  // takes most memory
  const RankPlan& slowest() const;       // computes most
};

}  // namespace gyr
