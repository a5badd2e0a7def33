// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/swap.hpp"

#include <algorithm>

namespace gyr {

namespace {
constexpr Index alignment = 256;
Index aligned(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }
}  // namespace

Index Swap::bytes_of(const Cargo& cargo) {
  Index sum = 0;
  for (const Cargo::Item& item : cargo.items()) sum += aligned(item.bytes);
  return sum;
}

double Swap::carried(const Cargo& cargo) {
  double sum = 0;
  for (const Cargo::Item& item : cargo.items()) sum += double(item.bytes);
  return sum;
}

std::vector<HostCopy> Swap::copies(const Load& load, bool out) const {
  std::vector<HostCopy> list;
  Index at = load.begin;
  for (const Cargo::Item& item : load.cargo.items()) {
    char* const here = memory_ + at;
    list.push_back(out ? HostCopy{item.data, here, item.bytes} : HostCopy{here, item.data, item.bytes});
    at += aligned(item.bytes);
  }
  return list;
}

void Swap::out(Device& dev, Index layer, Cargo cargo) {
  const Index bytes = bytes_of(cargo);
  ensure(!queues_ || used_ + bytes <= capacity_, "layer {}: {} bytes are to lie on the host behind {}, and there is room for {}", layer, bytes, used_,
         capacity_);
  Load& load = loads_[layer] = {std::move(cargo), used_};
  used_ += bytes, high_water_ = std::max(high_water_, used_);
  if (auto run = dev.launch(copy_out, 0, carried(load.cargo))) load.ticket = queues_->out(copies(load, true));
}

void Swap::leave(Index layer) {
  Load& load = loads_.at(layer);
  if (queues_) queues_->device_waits(load.ticket);
  load.cargo.leave();
}

void Swap::back(Device& dev, Index layer) {
  Load& load = loads_.at(layer);
  const Index bytes = bytes_of(load.cargo);
  ensure(load.begin + bytes == used_, "layer {} comes back before those that went behind it", layer);
  used_ = load.begin;
  load.cargo.come_back();
  if (auto run = dev.launch(copy_back, 0, carried(load.cargo))) load.ticket = queues_->back(copies(load, false));
}

Cargo Swap::arrive(Index layer) {
  const auto found = loads_.find(layer);
  if (queues_) queues_->device_waits(found->second.ticket);
  Cargo cargo = std::move(found->second.cargo);
  loads_.erase(found);
  return cargo;
}

void Swap::clear() { loads_.clear(), used_ = 0; }

}  // namespace gyr
