// SPDX-License-Identifier: BSD-3-Clause
// Lower bound of the seconds that a pipeline rank spends on its weights: gradient reductions and weight gathers over
// data-parallel replicas, and the optimizer step. These times do not depend on how a micro-batch is computed.
#pragma once

#include "src/planner/layouts/rank_places.hpp"
#include "src/planner/layouts/weight_shards.hpp"

namespace gyr {

struct ReplicaTimes {
  double reduce = 0, gather = 0;          // seconds per step of gradient reductions, and of weight gathers
  double sharing_buffers = 0, clear = 0;  // seconds per micro-batch: communication of buckets that share buffers, and zeroing of their gradients
  double step = 0;
};

class ReplicaBound {
 public:
  // `measured`: kernel times come from a profile, so the cluster gives no bound for kernels; optimizer step and zeroing
  // then count as 0.
  ReplicaBound(const RunConfig&, const Cluster&, StageContents&, WeightShards&, bool measured);
  // Times of each pipeline rank.
  const std::vector<ReplicaTimes>& of(const LayoutChoice&, const Places&);
  // Lower bound of the seconds per step of the weight update and the gradient norm on a pipeline rank; 0 if `measured`, because
  // there is no bound for kernels then.
  double step_of(const LayoutChoice&, int rank);
  // Seconds to set `bytes` bytes of gradients to zero.
  double clearing(double bytes) const { return measured_ ? 0 : bytes / passes_; }

 private:
  // Elements that a pipeline rank zeroes and reduces, and elements that it gathers twice, for each micro-batch.
  struct SharingBuffers {
    Elements trained, gathered;
  };
  ReplicaTimes times_of(const LayoutChoice&, const Places&, int rank);
  double seconds_of(Operation, const Elements&, double bytes_of_one, const Places&, int rank) const;
  SharingBuffers rotating_elements(const LayoutChoice&, int rank);

  const RunConfig& run_;
  const Cluster& cluster_;
  StageContents& contents_;
  WeightShards& weights_;
  bool measured_;
  double passes_;  // effective memory bandwidth in bytes per second on the fastest island
  ByWeights<std::vector<ReplicaTimes>> known_;
};

}  // namespace gyr
