// SPDX-License-Identifier: BSD-3-Clause
// Access to the CUDA runtime: the stream of a device, the GPU of this process, and error checks.
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
  cudaStream_t stream = nullptr;  // blocking stream: it synchronises with the default stream, on which synchronous host copies run
  cuda::Uploads uploads;
  std::shared_ptr<cuda::FusedLibrary> fused_attention;  // cuDNN attention, created on first use
};

namespace cuda {

// Fails with Exit::device and CUDA's error text if a call has failed. `what`: name of the kernel or of the operation.
void check(cudaError_t, const char* what);

inline cudaStream_t stream_of(const Device& dev) { return dev.queue.state().stream; }

// The GPU of this process: rank on the node modulo the number of GPUs. place_on_machine sets the rank. take_device
// selects the GPU on first use; Exit::device if there is none, or if the program contains no code for it.
void place_on_machine(int rank);
void take_device();
// UUID of the GPU, which is unique across nodes; and its name.
using DeviceIdentity = std::array<char, 16>;
DeviceIdentity device_identity();
std::string device_text();
int device_capability();  // compute capability of the GPU, 10 major + minor
// True if the environment variable is `on` or not set, false if it is `off`; otherwise Exit::usage.
bool environment_allows(const char* variable);
std::string runtime_version();
std::string compiled_gpus();  // GPUs that the program contains code for, see compiled_gpus.hpp

}  // namespace cuda

}  // namespace gyr
