// SPDX-License-Identifier: BSD-3-Clause
// Queue of a device: work runs in the order in which it is enqueued, asynchronously if the backend has a queue (a CUDA
// stream), at once if kernels run on the host. Also allocation and copies of device memory, which the host may read
// only if `host_reads_memory()`.
#pragma once

#include <memory>
#include <string>

#include "kernels/base/scalar.hpp"

namespace gyr {

class Queue {
 public:
  // The queue of a dry run accepts no work and needs no device.
  explicit Queue(bool dry_run);
  // Waits until all enqueued work is done. An error of the device fails here at the latest (Exit::device).
  void fence() const;

  struct State;  // stream of the queue, defined by the backend
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

namespace backend {

// Name of the backend: "kokkos", or for instance "cuda 13.0, for GPUs 80 90a 100+".
std::string name();
// True if this build computes on GPUs.
bool on_gpu();

// Allocates memory of the device; null if there is not enough.
void* take_memory(Index bytes);
void return_memory(void*);
bool host_reads_memory();

// Copies bytes within the device's memory, in the order of the queue.
void copy_on_device(const Queue&, const void* from, void* to, Index bytes);
// Copies between device and host: start after all work that the devices of this process were given before, and are
// complete on return.
void copy_to_host(const void* from, void* to, Index bytes);
void copy_to_device(const void* from, void* to, Index bytes);

}  // namespace backend

}  // namespace gyr
