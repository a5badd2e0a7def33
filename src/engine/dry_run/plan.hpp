// SPDX-License-Identifier: BSD-3-Clause
// What a run will take, before it takes it: one step of each rank is done as a dry run and counted.
#pragma once

#include "src/engine/dry_run/memory_lines.hpp"

namespace gyr {

struct CommunicatorTraffic {
  std::string name;
  int size;
  TrafficCount count;
};

struct RankPlan {
  int position;
  Capacity capacity;
  Index parameters;                          // elements on this rank, replicas and padding included
  double flops;                              // of one step, as executed
  std::vector<Work> work;                    // by kernel, of one step
  std::vector<CommunicatorTraffic> traffic;  // of one step
  std::vector<MemoryLine> memory;            // what the capacity is made of
  GemmCounts products;                       // of one step, where none of its micro-batches stands for others
  LaunchCounts launches;                     // the same of all kernels
  TaskCounts tasks;                          // of the program of one step; of the first micro-batches, where there are more than are walked
  BucketPlan buckets;                        // with which the program is compiled
};

// What a library of matrix products has said of the memory that they take, for dry runs one after the other: asking it takes longer than they do.
using KnownGemms = std::shared_ptr<GemmCache>;

// `beat`, if given, is called at every layer: what it throws ends the plan. `known`: from one dry run to the next.
RankPlan plan_rank(const EngineConfig&, const Layout&, int position, const std::function<void()>& beat = {}, KnownGemms* known = nullptr);

inline Capacity predicted_capacity(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat = {}) {
  return plan_rank(config, layout, position, beat).capacity;
}

std::vector<CommunicatorTraffic> traffic_of(Grid&);

}  // namespace gyr
