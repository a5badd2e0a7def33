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
  for (Event& event : under_way_[bucket]) event.device_wait(device_);
  under_way_[bucket].clear();
}

void WeightGathering::wait() {
  for (std::size_t bucket = 0; bucket < under_way_.size(); ++bucket) wait(int(bucket));
}

void WeightGathering::poll() {
  for (auto& events : under_way_)
    for (Event& event : events) event.done();
}

}  // namespace gyr
