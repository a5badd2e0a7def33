// SPDX-License-Identifier: BSD-3-Clause
// Access to the CUDA runtime: selection of the GPU, its properties, and error checks.
#include "kernels/cuda/machine/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/compiled_gpus.hpp"

namespace gyr::cuda {

namespace {

// Local rank and selected GPU of this process; -1 if none is selected yet.
struct Place {
  int rank = 0, device = -1;
};
Place& place() {
  static Place place;
  return place;
}

// Without this check the first kernel would fail with a message that names neither the GPU nor the compiled
// architectures.
void check_code(int device) {
  cudaDeviceProp it;
  check(cudaGetDeviceProperties(&it, device), "GPU properties");
  require(has_code_for(GYR_COMPILED_GPUS, 10 * it.major + it.minor), Exit::device,
          "this program is compiled for GPUs of compute capability {}, but this GPU ({}) has {}; rebuild it: make cuda GPUS={}", GYR_COMPILED_GPUS,
          it.name, 10 * it.major + it.minor, 10 * it.major + it.minor);
}

cudaDeviceProp properties() {
  take_device();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, place().device), "GPU properties");
  return properties;
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(Exit::device, "CUDA error ({}): {}", what, cudaGetErrorString(error));
}

void place_on_machine(int rank) { place().rank = rank; }

void take_device() {
  Place& here = place();
  if (here.device >= 0) return;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    fail(Exit::device,
         "this program computes on NVIDIA GPUs and finds none here ({}); start it on a machine with a GPU, or build the CPU version (make)",
         error == cudaSuccess ? "the driver is installed, but there is no device" : cudaGetErrorString(error));
  check_code(here.rank % count);
  check(cudaSetDevice(here.rank % count), "GPU selection");
  here.device = here.rank % count;
}

DeviceIdentity device_identity() {
  const cudaUUID_t uuid = properties().uuid;
  DeviceIdentity identity;
  std::copy_n(uuid.bytes, identity.size(), identity.begin());
  return identity;
}

std::string device_text() { return properties().name; }

int device_capability() {
  take_device();
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, place().device), "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, place().device), "compute capability");
  return 10 * major + minor;
}

bool environment_allows(const char* variable) {
  const char* const given = std::getenv(variable);
  const std::string_view wanted = given ? given : "on";
  require(wanted == "on" || wanted == "off", Exit::usage, "{} must be on or off, not '{}'", variable, wanted);
  return wanted == "on";
}

std::string compiled_gpus() { return GYR_COMPILED_GPUS; }

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "runtime version");
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace gyr::cuda
