// SPDX-License-Identifier: BSD-3-Clause
// Device and host memory that the ranks of a layout take, and whether it exceeds the memory of the cluster.
#pragma once

#include <algorithm>
#include <limits>

#include "src/planner/machine/cluster.hpp"

namespace gyr {

struct MemoryTaken {
  double bytes = 0, host = 0;  // maximum over ranks of device bytes and of offloaded host bytes

  // Bytes taken and bytes available on the rank with the least memory left.
  struct Usage {
    double takes = 0, has = std::numeric_limits<double>::infinity();
    double reserve = 0;  // bytes that exist besides `has` and must remain free (Cluster::Device::reserve)
    bool lacks() const { return takes > has; }
    bool lacks_reserve_only() const { return lacks() && takes <= has + reserve; }
  };
  Usage of_device = {}, of_host = {};
  bool lacks() const { return of_device.lacks() || of_host.lacks(); }

  // Adds a rank that takes `device` bytes of its device and offloads `offloaded` bytes to the host (activation.policy).
  void add(double device, double offloaded, const Cluster& island) {
    const auto keep = [](Usage& least, const Usage& other) {
      if (other.has - other.takes < least.has - least.takes) least = other;
    };
    bytes = std::max(bytes, device), host = std::max(host, offloaded);
    keep(of_device, {device, island.device.usable(), island.device.reserve});
    keep(of_host, {offloaded, island.host_memory_left(device), 0});
  }
};

}  // namespace gyr
