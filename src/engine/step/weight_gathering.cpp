// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/weight_gathering.hpp"

namespace gyr {

void WeightGathering::start(int bucket, int buffer) {
  const Device::Purpose purpose(device_, "weights of buckets: elements");
  const auto& sections = parameters_.buckets()[bucket].sections;
  const std::vector<Parameters::Distribution> distributed = parameters_.values(bucket, buffer);
  for (std::size_t i = 0; i < distributed.size(); ++i)
    if (sections[i].trained || parameters_.shard() == Shard::weights)
      in_flight_[bucket].push_back(grid_.replicas(distributed[i].of_experts).start_all_gather(device_, distributed[i].mine, distributed[i].all));
  parameters_.bind_values(bucket, buffer);
}

void WeightGathering::wait(int bucket) {
  const auto begun = in_flight_.find(bucket);
  if (begun == in_flight_.end()) return;
  for (Event& event : begun->second) event.device_wait(device_);
  in_flight_.erase(begun);
}

void WeightGathering::wait() {
  while (!in_flight_.empty()) wait(in_flight_.begin()->first);
}

void WeightGathering::poll() {
  for (auto& [bucket, events] : in_flight_)
    for (Event& event : events) event.done();
}

}  // namespace gyr
