// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/pass_times.hpp"

#include <algorithm>

#include "kernels/device/host_copies.hpp"
#include "src/planner/machine/collective.hpp"

namespace gyr {

namespace {

double seconds_of_kernels(const LaunchCounts& launches, DType precision, PassKind kind, const Cluster& cluster, const Profile* profile) {
  const double bandwidth = cluster.fit.memory * cluster.device.memory_bandwidth;
  double sum = 0;
  for (const auto& [shape, count] : launches) {
    double one = seconds_of(shape, precision, cluster, profile);
    if (kind == PassKind::decode && !profile && !is_copy(shape.kernel)) one = std::max(one, shape.bytes / bandwidth);
    sum += double(count.calls) * one;
  }
  return sum;
}

}  // namespace

PassTime pass_time(const LaunchCounts& launches, const std::vector<CommunicatorTraffic>& traffic, const LayoutOnMesh& place, int position,
                   DType precision, PassKind kind, const PassMachine& machine) {
  PassTime time{seconds_of_kernels(launches, precision, kind, machine.cluster.island_of(place.rank_of(position)), machine.profile)};
  for (const CommunicatorTraffic& c : traffic) {
    if (c.size == 1 || c.count.lines().empty()) continue;
    std::vector<int> ranks = ranks_of(place.layout, position, c.name);
    for (int& rank : ranks) rank = place.mesh.ranks[std::size_t(rank)];
    const GroupPlacement group = placement_of(ranks, machine.cluster);
    for (const TrafficCount::Line& line : c.count.lines())
      (line.operation == Operation::send ? time.message : time.work) += seconds_of(line.operation, line.traffic, group, machine.cluster);
  }
  return time;
}

PassTime slower(const PassTime& a, const PassTime& b) { return {std::max(a.work, b.work), std::max(a.message, b.message)}; }

}  // namespace gyr
