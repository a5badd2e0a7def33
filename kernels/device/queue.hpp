// SPDX-License-Identifier: BSD-3-Clause
// What a device is told runs in that order, beside the host where a backend has a queue for it, and at once where kernels run on the host.
// And the memory that it works on, which the host may read only where `host_reads_memory()`.
#pragma once

#include <memory>
#include <string>

#include "kernels/base/scalar.hpp"

namespace gyr {

class Queue {
 public:
  // A dry run's is told nothing, and asks for no device.
  explicit Queue(bool dry_run);
  // Until all is done; an error of the device ends the program here at the latest (Exit::device).
  void fence() const;

  struct State;  // of a backend
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

namespace backend {

// "kokkos", or "cuda 13.0".
std::string name();

// Memory of the device; null where there is not so much.
void* take_memory(Index bytes);
void return_memory(void*);
bool host_reads_memory();

// Bytes from a place of the device to another, in the order of the queue.
void copy_on_device(const Queue&, const void* from, void* to, Index bytes);
// Between device and host: behind all that the devices of this process were told before, and ended on return.
void copy_to_host(const void* from, void* to, Index bytes);
void copy_to_device(const void* from, void* to, Index bytes);

}  // namespace backend

}  // namespace gyr
