// SPDX-License-Identifier: BSD-3-Clause
// Work that a rank tells its device again and again, the same but for what lies in the device's memory. Where the backend has graphs it is told
// kernel by kernel the first time, which also makes what is made once, captured the second, and one launch from then on.
#pragma once

#include <functional>
#include <vector>

#include "kernels/comm/communicator.hpp"
#include "kernels/device/device_graph.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// Those by which layers exchange what they compute with, and whether a graph holds what travels there.
std::vector<Communicator*> layer_communicators(Grid&);
bool graphs_support(const std::vector<Communicator*>&);

class GraphReplay {
 public:
  // `exchanges`: all over which it moves something.
  explicit GraphReplay(std::vector<Communicator*> exchanges = {}) : possible_(DeviceGraph::possible()), exchanges_(std::move(exchanges)) {}

  // Tells it. Kernels' work is counted as they are told, what moves between ranks for every launch.
  void run(Device&, const std::function<void()>& enqueue);
  bool captured() const { return graph_.captured(); }

  // Whether somebody wants to know of each kernel: then nothing is a graph.
  static bool watched(const Device& dev) { return dev.dry_run() || dev.times_launches || dev.recorder(); }

 private:
  std::vector<TrafficCount> traffic() const;

  bool possible_, enqueued_ = false;
  std::vector<Communicator*> exchanges_;
  DeviceGraph graph_;
  std::vector<TrafficCount> traffic_;  // of one launch
};

}  // namespace gyr
