// SPDX-License-Identifier: BSD-3-Clause
// What ranks of a layout take of their devices and hosts, at least: weights, gradients and optimizer states of the elements that are cut evenly, and
// what layers keep of the micro-batches under way; of those that swap, what one of them needs while it goes back. On the host what they swap.
#pragma once

#include "src/planner/layouts/weight_shards.hpp"
#include "src/planner/predict/memory_taken.hpp"

namespace gyr {

class MemoryBound {
 public:
  // `backwards`: all layers go back.
  MemoryBound(const RunConfig&, const Cluster&, StageContents&, WeightShards&, bool backwards);

  // Of weights, gradients and states alone.
  const MemoryTaken& of_states(const LayoutChoice&);
  // Of these and of what parts keep.
  MemoryTaken of(const LayoutChoice&, const PartRun&, const Shares&);
  // The same where a rank's weights, gradients and states are known to take so much.
  void add(MemoryTaken&, const LayoutChoice&, const PartRun&, const Shares&, int rank, double states);

 private:
  void add(MemoryTaken&, const LayoutChoice&, int rank, double bytes, double host = 0);
  double bytes_of_kept(const LayoutChoice&, const PartRun&, const PartsOfRank&, int rank, const Shares&);
  double bytes_of_offloading(const LayoutChoice&, const PartsOfRank&, int rank, const Shares&);
  double bytes_on_host(const LayoutChoice&, const PartsOfRank&, int rank, const Shares&);
  double least_kept(const LayoutChoice&, const PartRun&, int rank, const Shares&);
  double least_on_host(const LayoutChoice&, const PartRun&, int rank, const Shares&);
  int in_flight(const LayoutChoice&, int rank, int chunk);

  const RunConfig& run_;
  const Cluster& cluster_;
  Cluster largest_;  // memory that any island has
  StageContents& contents_;
  WeightShards& weights_;
  const LayerTypes& types_;
  bool backwards_;
  std::map<std::array<int, 4>, std::vector<int>> in_flight_;
  ByWeights<MemoryTaken> states_;
};

// The schedule of a layout's ranks.
Schedule schedule_of(const LayoutChoice&);

}  // namespace gyr
