// SPDX-License-Identifier: BSD-3-Clause
// Work that a device has been told once and is told again as one: a launch in place of hundreds. Whatever kernels were given as arguments, pointers
// too, is what it was; numbers that change from time to time have to lie in memory of the device.
#pragma once

#include <functional>
#include <memory>

#include "kernels/device/queue.hpp"
#include "kernels/device/transport.hpp"

namespace gyr {

class DeviceGraph {
 public:
  // Whether the backend has graphs, and the environment lets it (GYR_CUDA_GRAPHS).
  static bool possible();
  // Whether what travels there may be part of one: its ranks then launch graphs of the same operations in the same order.
  static bool possible_with(const Transport&);

  DeviceGraph();
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&&) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) noexcept;

  // Keeps what `tell` tells the queue, which does nothing of it. Meanwhile nobody may wait for the device, take or give back memory of it or let it
  // exchange memory with the host: Exit::device.
  void capture(const Queue&, const std::function<void()>& enqueue);
  bool captured() const { return state_ != nullptr; }
  // In the order of the queue. The graph is not given back before that is done.
  void launch(const Queue&) const;

 private:
  struct State;  // of a backend
  std::unique_ptr<State> state_;
};

}  // namespace gyr
