// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/machine/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/compiled_gpus.hpp"

namespace gyr::cuda {

namespace {

// What this process runs on, once for all of its devices.
struct Place {
  int rank = 0, device = -1;
};
Place& place() {
  static Place place;
  return place;
}

// Else its first kernel fails, with words that name neither.
void check_code(int device) {
  cudaDeviceProp it;
  check(cudaGetDeviceProperties(&it, device), "properties of the GPU");
  require(has_code_for(GYR_COMPILED_GPUS, 10 * it.major + it.minor), Exit::device,
          "this program has code for GPUs of capability {}, and this one, {}, has {}; build it anew: make cuda GPUS={}", GYR_COMPILED_GPUS, it.name,
          10 * it.major + it.minor, 10 * it.major + it.minor);
}

cudaDeviceProp properties() {
  take_device();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, place().device), "properties of the GPU");
  return properties;
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(Exit::device, "CUDA, {}: {}", what, cudaGetErrorString(error));
}

void place_on_machine(int rank) { place().rank = rank; }

void take_device() {
  Place& here = place();
  if (here.device >= 0) return;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    fail(Exit::device,
         "this program computes on NVIDIA GPUs and finds none here ({}); start it on a machine that has one, or build it for hosts (make)",
         error == cudaSuccess ? "there is a driver, and no device" : cudaGetErrorString(error));
  check_code(here.rank % count);
  check(cudaSetDevice(here.rank % count), "the choice of a GPU");
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
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, place().device), "the GPU's capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, place().device), "the GPU's capability");
  return 10 * major + minor;
}

bool environment_allows(const char* variable) {
  const char* const given = std::getenv(variable);
  const std::string_view wanted = given ? given : "on";
  require(wanted == "on" || wanted == "off", Exit::usage, "{} is on or off, not '{}'", variable, wanted);
  return wanted == "on";
}

std::string compiled_gpus() { return GYR_COMPILED_GPUS; }

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "its version");
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace gyr::cuda
