// SPDX-License-Identifier: BSD-3-Clause
// A moment of a stream of CUDA that other streams wait for.
#pragma once

#include <utility>

#include "kernels/cuda/machine/runtime.hpp"

namespace gyr::cuda {

class Signal {  // an event of CUDA
 public:
  Signal() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event"); }
  Signal(Signal&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Signal& operator=(Signal&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Signal() {
    if (event_) cudaEventDestroy(event_);
  }
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "an event"); }
  void wait_in(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event"); }
  bool done() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) check(state, "an event");
    return state == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace gyr::cuda
