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
    bool lacks() const { return takes > has; }
  };
  Usage of_device = {}, of_host = {};

  // Adds a rank that takes `device` bytes of its device and offloads `offloaded` bytes to the host (activation.policy).
  void add(double device, double offloaded, const Cluster& island) {
    const auto keep = [](Usage& least, const Usage& other) {
      if (other.has - other.takes < least.has - least.takes) least = other;
    };
    bytes = std::max(bytes, device), host = std::max(host, offloaded);
    keep(of_device, {device, island.device.memory});
    keep(of_host, {offloaded, island.host_memory_left(device)});
  }
};

}  // namespace gyr
