// SPDX-License-Identifier: BSD-3-Clause
// Predicts the memory, work and traffic of a run: one step of each rank is executed as a dry run and counted.
#pragma once

#include "src/engine/dry_run/memory_lines.hpp"

namespace gyr {

struct CommunicatorTraffic {
  std::string name;
  int size;
  TrafficCount count;
};

struct RankPlan {
  int position;  // position of the rank in the grid
  Capacity capacity;
  Index parameters;                          // elements on this rank, including replicated weights and padding
  double flops;                              // FLOPs of one step, including recomputation
  std::vector<Work> work;                    // calls, FLOPs and bytes of one step, by kernel
  std::vector<CommunicatorTraffic> traffic;  // traffic of one step, by communicator
  std::vector<MemoryLine> memory;            // lines of bytes, by category, that add up to the capacity
  GemmCounts gemms;                          // GEMM calls of one step by shape, without micro-batches whose counts were reused (DryCount)
  LaunchCounts launches;                     // kernel launches of one step by shape, without micro-batches whose counts were reused
  TaskCounts tasks;                          // counts of the tasks of one dry-run step; fewer than in the run if it has more than 4096 micro-batches
  BucketPlan buckets;                        // bucket plan that the program was compiled with
};

// Cache of the scratch memory that the GEMM library needs for each shape, shared by successive dry runs. Asking the
// library takes longer than the dry run.
using KnownGemms = std::shared_ptr<GemmCache>;

// A build for hosts that plans for GPUs needs two dry runs. One has the scratch of the CUDA kernels, gives the memory and
// counts no work. The other, with the configuration that counted_config() returns, counts the work of this build's own
// kernels, to which the constants of cluster files are fitted.
bool plans_foreign_gpu(const EngineConfig&);
EngineConfig counted_config(const EngineConfig&);
void take_memory(TaskCounts&, const TaskCounts& on_gpu);  // memory of each task, of the same program

// `beat`, if given, is called at every layer; an exception that it throws ends the plan. `known`: cache passed from one
// dry run to the next.
RankPlan plan_rank(const EngineConfig&, const Layout&, int position, const std::function<void()>& beat = {}, KnownGemms* known = nullptr);

inline Capacity predicted_capacity(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat = {}) {
  return plan_rank(config, layout, position, beat).capacity;
}

std::vector<CommunicatorTraffic> traffic_of(Grid&);

}  // namespace gyr
