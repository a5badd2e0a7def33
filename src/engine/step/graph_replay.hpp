// SPDX-License-Identifier: BSD-3-Clause
// Work that a rank enqueues repeatedly, with only the contents of device memory changing. If the backend has CUDA
// graphs, the first run launches kernel by kernel, which also does one-time set-up. The second run captures a graph.
// From then on each run is one graph launch.
#pragma once

#include <functional>
#include <vector>

#include "kernels/comm/communicator.hpp"
#include "kernels/device/device_graph.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// Communicators over which layers exchange data during computation; and true if a graph can contain their transfers.
std::vector<Communicator*> layer_communicators(Grid&);
bool graphs_support(const std::vector<Communicator*>&);

class GraphReplay {
 public:
  // `exchanges`: all communicators that the work uses.
  explicit GraphReplay(std::vector<Communicator*> exchanges = {}) : possible_(DeviceGraph::possible()), exchanges_(std::move(exchanges)) {}

  // Runs the work: kernel by kernel, or as a graph. Kernel work is counted when kernels are launched or captured,
  // traffic at every launch.
  void run(Device&, const std::function<void()>& enqueue);
  bool captured() const { return graph_.captured(); }

  // True if kernels must be launched one by one, without graphs: in a dry run, for kernel timing, or for a trace.
  static bool watched(const Device& dev) { return dev.dry_run() || dev.times_launches || dev.recorder(); }

 private:
  std::vector<TrafficCount> traffic() const;

  bool possible_, enqueued_ = false;
  std::vector<Communicator*> exchanges_;
  DeviceGraph graph_;
  std::vector<TrafficCount> traffic_;  // traffic of one graph launch, by communicator
};

}  // namespace gyr
