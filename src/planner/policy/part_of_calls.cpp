// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/part_of_calls.hpp"

#include <algorithm>
#include <limits>

namespace gyr {

PartOfCalls::PartOfCalls(int ranks) : part_{0, std::vector<double>(std::size_t(ranks)), std::vector<double>(std::size_t(ranks))} {}

void PartOfCalls::add(const PlannedCall& call) {
  part_.seconds += call.seconds;
  if (!call.layout) return;
  std::vector<double>& kept = kept_[call.model];
  kept.resize(part_.kept.size());
  for (int i = 0; i < call.mesh.size(); ++i) {
    const std::size_t rank = std::size_t(call.mesh.ranks[std::size_t(i)]);
    const CallMemory& memory = call.memory[std::size_t(call.layout->coordinate(call.layout->position_of(i), Axis::pipeline))];
    kept[rank] = std::max(kept[rank], double(memory.kept)), part_.working[rank] = std::max(part_.working[rank], double(memory.working));
  }
}

void PartOfCalls::add(const std::vector<PlannedCall>& calls) {
  for (const PlannedCall& call : calls) add(call);
}

PlanPart PartOfCalls::part() const {
  PlanPart all = part_;
  for (const auto& [model, kept] : kept_)
    for (std::size_t rank = 0; rank < kept.size(); ++rank) all.kept[rank] += kept[rank];
  return all;
}

std::vector<double> usable_bytes(const Cluster& cluster, int ranks) {
  std::vector<double> usable;
  for (int rank = 0; rank < ranks; ++rank) usable.push_back(cluster.island_of(rank).device.usable());
  return usable;
}

std::optional<double> bytes_that_fit(const std::vector<const PlanPart*>& parts, const std::vector<double>& usable) {
  double fullest = 0, least_left = std::numeric_limits<double>::infinity();
  for (std::size_t rank = 0; rank < usable.size(); ++rank) {
    double kept = 0, working = 0;
    for (const PlanPart* part : parts) kept += part->kept[rank], working = std::max(working, part->working[rank]);
    const double left = usable[rank] - kept - working;
    if (left < 0) return {};
    if (left < least_left) least_left = left, fullest = kept + working;
  }
  return fullest;
}

}  // namespace gyr
