// SPDX-License-Identifier: BSD-3-Clause
// Seconds of forward passes over micro-batches: old log-probabilities, reference and reward models, values of a critic.
//   sum over stages of (f + u) + (m - 1) max over stages of (f + u)
// f: forward of a micro-batch on a stage; u: its message to the next stage; m: micro-batches
#pragma once

#include "src/planner/policy/pass_times.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

class ForwardTimes {
 public:
  // From dry runs of one micro-batch without training. `runs`: cache of such dry runs of this model; null: none is shared.
  ForwardTimes(EngineConfig, const LayoutOnMesh&, const PassMachine&, StageRuns* runs = nullptr);

  double seconds(Index micros) const;
  // By pipeline stage: memory of the rank that needs most.
  const std::vector<Capacity>& capacities() const { return capacities_; }

 private:
  std::vector<double> stages_;  // seconds of a micro-batch with its message
  std::vector<Capacity> capacities_;
};

}  // namespace gyr
