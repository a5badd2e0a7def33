// SPDX-License-Identifier: BSD-3-Clause
// What a rank of the pipeline does with all of its weights, in seconds at least: sums of gradients and gathers of weights over its replicas, and its
// step. None of it depends on how a micro-batch is computed.
#pragma once

#include "src/planner/layouts/rank_places.hpp"
#include "src/planner/layouts/weight_shards.hpp"

namespace gyr {

struct ReplicaTimes {
  double reduce = 0, gather = 0;  // once a step
  double turning = 0, clear = 0;  // for each micro-batch: of buckets that take turns, and of their gradients, which begin at zero
  double step = 0;
};

class ReplicaBound {
 public:
  // `measured`: kernels, of which the cluster knows nothing then.
  ReplicaBound(const RunConfig&, const Cluster&, StageContents&, WeightShards&, bool measured);
  // Of each rank of the pipeline.
  const std::vector<ReplicaTimes>& of(const LayoutChoice&, const Places&);
  // AdamW and the norm of gradients.
  double step_of(const LayoutChoice&, int rank);
  // Gradients of so many bytes begin at zero.
  double clearing(double bytes) const { return measured_ ? 0 : bytes / passes_; }

 private:
  // Those that a rank of the pipeline clears and reduces, and gathers twice, for each micro-batch.
  struct Turning {
    Elements trained, gathered;
  };
  ReplicaTimes times_of(const LayoutChoice&, const Places&, int rank);
  double seconds_of(Operation, const Elements&, double bytes_of_one, const Places&, int rank) const;
  Turning rotating_elements(const LayoutChoice&, int rank);

  const RunConfig& run_;
  const Cluster& cluster_;
  StageContents& contents_;
  WeightShards& weights_;
  bool measured_;
  double passes_;  // bytes a second over memory, on the fastest island
  ByWeights<std::vector<ReplicaTimes>> known_;
};

}  // namespace gyr
