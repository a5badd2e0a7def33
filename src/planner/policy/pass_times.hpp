// SPDX-License-Identifier: BSD-3-Clause
// Seconds of a forward pass on one rank, from the launches and the traffic that a dry run has counted.
#pragma once

#include "src/engine/dry_run/plan.hpp"
#include "src/parallel/mesh.hpp"
#include "src/planner/machine/kernel_times.hpp"

namespace gyr {

// The machine that a pass is timed for. `profile`: null to time kernels by the constants of the cluster.
struct PassMachine {
  const Cluster& cluster;
  const Profile* profile = nullptr;
};

// A layout on ranks of the run.
struct LayoutOnMesh {
  const Layout& layout;
  const Mesh& mesh;
  int rank_of(int position) const { return mesh.ranks[std::size_t(layout.rank_at(position))]; }
};

struct PassTime {
  double work = 0;     // seconds of kernels and of collectives, which a forward pass waits for
  double message = 0;  // seconds of the message to the next pipeline stage
};

// prefill: kernels of many tokens, timed as those of training. decode: attention reads a KV cache, which takes no less than
// its bytes need, also if attention is fused.
enum class PassKind { prefill, decode };

PassTime pass_time(const LaunchCounts&, const std::vector<CommunicatorTraffic>&, const LayoutOnMesh&, int position, DType, PassKind,
                   const PassMachine&);

// The slower of two ranks that wait for each other.
PassTime slower(const PassTime&, const PassTime&);

}  // namespace gyr
