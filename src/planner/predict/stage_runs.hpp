// SPDX-License-Identifier: BSD-3-Clause
// Cache of dry runs of stages. Each dry run is done once and represents all ranks that do the same work, in this and in
// other layouts.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

struct StageRun {
  RankPlan plan;
  Program program;  // program that the dry run executed
  DType precision;
  // Memory of a rank that keeps `slots` micro-batches in each of its chunks.
  Capacity capacity(const std::vector<int>& slots) const;
};

// Cache for one model and one optimizer. The other settings of EngineConfig, and the layout, may differ from call to
// call.
class StageRuns {
 public:
  // Dry run of the rank at `position`, in a step with planned.micros micro-batches.
  std::shared_ptr<const StageRun> of(const EngineConfig& planned, const Layout&, int position);
  std::size_t count() const { return runs_.size(); }

 private:
  std::map<std::string, std::shared_ptr<const StageRun>> runs_;
  KnownGemms known_;
};

// Text that describes the layers of a stage and its ends. Stages with equal texts compute the same.
std::string content_of(const ModelConfig&, const Layout&, int stage);

// Positions that represent all ranks of a stage: the first and the last rank of the tensor-parallel and
// context-parallel axes.
std::vector<int> positions_of(const Layout&, int stage);

}  // namespace gyr
