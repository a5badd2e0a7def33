// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/move_times.hpp"

#include <algorithm>

#include "src/planner/machine/collective.hpp"

namespace gyr {

double move_seconds(const MovePlan& plan, const Cluster& cluster) {
  constexpr Index largest_message = Index(32) << 20;
  std::map<int, double> sends, receives, copies;  // by rank
  for (const auto& [pair, bytes] : plan.bytes()) {
    const auto [from, to] = pair;
    if (from == to) {
      const Cluster& island = cluster.island_of(from);
      copies[from] += 2 * double(bytes) / (island.fit.memory * island.device.memory_bandwidth);
      continue;
    }
    const Traffic traffic{(bytes + largest_message - 1) / largest_message, bytes};
    const double seconds = seconds_of(Operation::send, traffic, placement_of({from, to}, cluster), cluster);
    sends[from] += seconds, receives[to] += seconds;
  }
  const auto most = [](const std::map<int, double>& all) {
    double longest = 0;
    for (const auto& [rank, seconds] : all) longest = std::max(longest, seconds);
    return longest;
  };
  return std::max(most(sends), most(receives)) + most(copies);
}

}  // namespace gyr
