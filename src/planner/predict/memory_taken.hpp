// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a layout take of their devices and of their hosts, and where that is more than there is.
#pragma once

#include <algorithm>
#include <limits>

#include "src/planner/machine/cluster.hpp"

namespace gyr {

struct MemoryTaken {
  double bytes = 0, host = 0;  // of the rank where each is most

  // Of the rank that has least left.
  struct Room {
    double takes = 0, has = std::numeric_limits<double>::infinity();
    bool lacks() const { return takes > has; }
  };
  Room of_device = {}, of_host = {};

  // A rank takes so many bytes of its device, and swaps so many (activation.policy).
  void add(double device, double offloaded, const Cluster& island) {
    const auto keep = [](Room& least, const Room& other) {
      if (other.has - other.takes < least.has - least.takes) least = other;
    };
    bytes = std::max(bytes, device), host = std::max(host, offloaded);
    keep(of_device, {device, island.device.memory});
    keep(of_host, {offloaded, island.host_memory_left(device)});
  }
};

}  // namespace gyr
