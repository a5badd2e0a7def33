// SPDX-License-Identifier: BSD-3-Clause
// Dry runs of stages: each is done once, and stands for all ranks that would do the same, in this layout and in others.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

struct StageRun {
  RankPlan plan;
  Program program;  // that was counted
  DType precision;
  // Bytes of a rank that keeps so many micro-batches in each of its chunks.
  Capacity capacity(const std::vector<int>& slots) const;
};

// Of one model and one optimizer: what else EngineConfig says may differ from call to call, and the layout.
class StageRuns {
 public:
  // Of the rank at a position, in a step of so many micro-batches as `planned` says.
  std::shared_ptr<const StageRun> of(const EngineConfig& planned, const Layout&, int position);
  std::size_t count() const { return runs_.size(); }

 private:
  std::map<std::string, std::shared_ptr<const StageRun>> runs_;
  KnownGemms known_;
};

// The layers of a stage and what is at its ends; stages of which it says the same compute the same.
std::string content_of(const ModelConfig&, const Layout&, int stage);

// Positions of a stage that stand for all of it: both ends of the axes on which ranks share layers or sequences, and where these begin.
std::vector<int> positions_of(const Layout&, int stage);

}  // namespace gyr
