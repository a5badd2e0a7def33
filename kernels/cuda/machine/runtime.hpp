// SPDX-License-Identifier: BSD-3-Clause
// CUDA's runtime as the program uses it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>

#include "kernels/cuda/machine/uploads.hpp"
#include "kernels/device/device.hpp"

namespace gyr {

namespace cuda {
class FusedLibrary;
}

struct Queue::State {
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  cudaStream_t stream = nullptr;  // waits for the default stream, in which host and device exchange memory, and is waited for by it
  cuda::Uploads uploads;
  std::shared_ptr<cuda::FusedLibrary> fused_attention;  // where it was needed
};

namespace cuda {

// Exit::device with CUDA's own words where a call has failed; `what` is the kernel, or what was asked for.
void check(cudaError_t, const char* what);

inline cudaStream_t stream_of(const Device& dev) { return dev.queue.state().stream; }

// The GPU of this process: of those that there are the one with this process' number on its machine, round and round. It is taken when something asks
// for it first; Exit::device where there is none.
void place_on_machine(int rank);
void take_device();
// What tells it from all other GPUs, of other machines too and by whatever number a process knows it; its name; and the runtime's version.
using DeviceIdentity = std::array<char, 16>;
DeviceIdentity device_identity();
std::string device_text();
int device_capability();  // 10 major + minor
// Whether a variable of the environment that switches something off is `on` or not there; Exit::usage where it is neither `on` nor `off`.
bool environment_allows(const char* variable);
std::string runtime_version();
std::string compiled_gpus();  // for which there is code, see compiled_gpus.hpp

}  // namespace cuda

}  // namespace gyr
