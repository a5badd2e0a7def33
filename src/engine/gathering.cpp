// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/gathering.hpp"

namespace gyr {

void WeightGathering::start(int bucket, int buffer) {
  const Device::Purpose purpose(device_, "weights of buckets: elements");
  const auto& sections = parameters_.buckets()[bucket].sections;
  const std::vector<Parameters::Dealt> dealt = parameters_.values(bucket, buffer);
  for (std::size_t i = 0; i < dealt.size(); ++i)
    if (sections[i].trained || parameters_.shard() == Shard::weights)
      under_way_[bucket].push_back(grid_.replicas(dealt[i].of_experts).start_all_gather(device_, dealt[i].mine, dealt[i].all));
  parameters_.bind_values(bucket, buffer);
}

void WeightGathering::wait(int bucket) {
  const auto begun = under_way_.find(bucket);
  if (begun == under_way_.end()) return;
  for (Event& event : begun->second) event.device_wait(device_);
  under_way_.erase(begun);
}

void WeightGathering::wait() {
  while (!under_way_.empty()) wait(under_way_.begin()->first);
}

void WeightGathering::poll() {
  for (auto& [bucket, events] : under_way_)
    for (Event& event : events) event.done();
}

}  // namespace gyr
