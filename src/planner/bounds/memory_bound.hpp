// SPDX-License-Identifier: BSD-3-Clause
// Lower bound of the device and host memory that ranks of a layout take. Device: weights, gradients and optimizer
// states that are evenly sharded, and the activations that layers keep for the micro-batches in flight. With offload:
// the memory that one layer needs during its backward. Host: the offloaded activations.
#pragma once

#include "src/planner/layouts/weight_shards.hpp"
#include "src/planner/predict/memory_taken.hpp"

namespace gyr {

class MemoryBound {
 public:
  // `backwards`: every layer runs a backward pass.
  MemoryBound(const RunConfig&, const Cluster&, StageContents&, WeightShards&, bool backwards);

  // Memory of weights, gradients and optimizer states only.
  const MemoryTaken& of_states(const LayoutChoice&);
  // Memory of weights, gradients, optimizer states and kept activations.
  MemoryTaken of(const LayoutChoice&, const PartRun&, const FractionRange&);
  // Adds one rank whose weights, gradients and optimizer states take `states` bytes.
  void add(MemoryTaken&, const LayoutChoice&, const PartRun&, const FractionRange&, int rank, double states);

 private:
  void add(MemoryTaken&, const LayoutChoice&, int rank, double bytes, double host = 0);
  double bytes_of_kept(const LayoutChoice&, const PartRun&, const PartsOfRank&, int rank, const FractionRange&);
  double bytes_of_offloading(const LayoutChoice&, const PartsOfRank&, int rank, const FractionRange&);
  double bytes_on_host(const LayoutChoice&, const PartsOfRank&, int rank, const FractionRange&);
  double least_kept(const LayoutChoice&, const PartRun&, int rank, const FractionRange&);
  double least_on_host(const LayoutChoice&, const PartRun&, int rank, const FractionRange&);
  int in_flight(const LayoutChoice&, int rank, int chunk);

  const RunConfig& run_;
  const Cluster& cluster_;
  Cluster largest_;  // with the largest device and host memory of any island
  StageContents& contents_;
  WeightShards& weights_;
  const LayerTypes& types_;
  bool backwards_;
  std::map<std::array<int, 4>, std::vector<int>> in_flight_;
  ByWeights<MemoryTaken> states_;
};

// Pipeline schedule of a layout: interleaved if it has virtual stages.
Schedule schedule_of(const LayoutChoice&);

}  // namespace gyr
