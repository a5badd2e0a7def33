// SPDX-License-Identifier: BSD-3-Clause
// Capture and replay of a device's work (CUDA graphs): one launch instead of hundreds. Kernel arguments, including
// pointers, are those of the capture. Values that change between replays must be in device memory.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device/queue.hpp"
#include "kernels/device/transport.hpp"

namespace gyr {

class DeviceGraph {
 public:
  // True if the backend has CUDA graphs, the environment allows them (GYR_CUDA_GRAPHS), and arenas are not in host
  // memory (GYR_CUDA_MEMORY=pinned).
  static bool possible();
  // True if operations of this transport can be captured. All ranks must then launch graphs of the same operations in
  // the same order.
  static bool possible_with(const Transport&);

  DeviceGraph();
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&&) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) noexcept;

  // Captures the work that the function enqueues, without running it. During the capture it is an error (Exit::device) to
  // wait for the device, to allocate or free its memory, or to copy between its memory and the host.
  void capture(const Queue&, const std::function<void()>& enqueue);
  bool captured() const { return state_ != nullptr; }
  // Replays the graph in the order of the queue. The graph must not be destroyed before the replay is done.
  void launch(const Queue&) const;

 private:
  struct State;  // captured graph, defined by the backend
  std::unique_ptr<State> state_;
};

}  // namespace gyr
