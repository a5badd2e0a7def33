// SPDX-License-Identifier: BSD-3-Clause
// CUDA event: a point in a stream that other streams or the host can wait for.
#pragma once

#include <utility>

#include "kernels/cuda/machine/runtime.hpp"

namespace gyr::cuda {

class Signal {
 public:
  Signal() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event creation"); }
  Signal(Signal&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Signal& operator=(Signal&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Signal() {
    if (event_) cudaEventDestroy(event_);
  }
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "event record"); }
  void wait_in(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "stream wait for an event"); }
  bool done() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) check(state, "event query");
    return state == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace gyr::cuda
