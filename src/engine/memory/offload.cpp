// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/memory/offload.hpp"

#include <algorithm>

namespace gyr {

namespace {
constexpr Index alignment = 256;
Index aligned(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }
}  // namespace

Index OffloadQueue::bytes_of(const OffloadBatch& offload_batch) {
  Index sum = 0;
  for (const OffloadBatch::Item& item : offload_batch.items()) sum += aligned(item.bytes);
  return sum;
}

double OffloadQueue::carried(const OffloadBatch& offload_batch) {
  double sum = 0;
  for (const OffloadBatch::Item& item : offload_batch.items()) sum += double(item.bytes);
  return sum;
}

std::vector<HostCopy> OffloadQueue::copies(const Load& load, bool out) const {
  std::vector<HostCopy> list;
  Index at = load.begin;
  for (const OffloadBatch::Item& item : load.offload_batch.items()) {
    char* const here = memory_ + at;
    list.push_back(out ? HostCopy{item.data, here, item.bytes} : HostCopy{here, item.data, item.bytes});
    at += aligned(item.bytes);
  }
  return list;
}

void OffloadQueue::out(Device& dev, Index layer, OffloadBatch offload_batch) {
  const Index bytes = bytes_of(offload_batch);
  ensure(!queues_ || used_ + bytes <= capacity_, "layer {}: {} bytes cannot be offloaded after {} used bytes, because host memory has {}", layer,
         bytes, used_, capacity_);
  Load& load = loads_[layer] = {std::move(offload_batch), used_};
  used_ += bytes, high_water_ = std::max(high_water_, used_);
  if (auto run = dev.launch(copy_out, 0, carried(load.offload_batch))) load.ticket = queues_->out(copies(load, true));
}

void OffloadQueue::leave(Index layer) {
  Load& load = loads_.at(layer);
  if (queues_) queues_->device_waits(load.ticket);
  load.offload_batch.leave();
}

void OffloadQueue::back(Device& dev, Index layer) {
  Load& load = loads_.at(layer);
  const Index bytes = bytes_of(load.offload_batch);
  ensure(load.begin + bytes == used_, "layer {} is copied back before a layer that was offloaded after it", layer);
  used_ = load.begin;
  load.offload_batch.reallocate();
  if (auto run = dev.launch(copy_back, 0, carried(load.offload_batch))) load.ticket = queues_->back(copies(load, false));
}

OffloadBatch OffloadQueue::arrive(Index layer) {
  const auto found = loads_.find(layer);
  if (queues_) queues_->device_waits(found->second.ticket);
  OffloadBatch offload_batch = std::move(found->second.offload_batch);
  loads_.erase(found);
  return offload_batch;
}

void OffloadQueue::clear() { loads_.clear(), used_ = 0; }

}  // namespace gyr
