// SPDX-License-Identifier: BSD-3-Clause
// The CUDA stream of a device, its memory, and synchronous copies between device and host.
#include "kernels/device/queue.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "kernels/base/error.hpp"
#include "kernels/cuda/comm/nccl_memory.hpp"
#include "kernels/cuda/cudnn/description.hpp"
#include "kernels/cuda/machine/held_memory.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

using cuda::check;

Queue::State::State() {
  cuda::take_device();
  check(cudaStreamCreateWithFlags(&stream, cudaStreamDefault), "stream creation");
}
Queue::State::~State() {
  cudaStreamSynchronize(stream);
  fused_attention.reset();
  cudaStreamDestroy(stream);
}

Queue::Queue(bool dry_run) : state_(dry_run ? nullptr : std::make_shared<State>()) {}
void Queue::fence() const {
  if (state_) check(cudaStreamSynchronize(state_->stream), "waiting for the device's work");
}

namespace backend {

namespace {

// Memory selected by GYR_CUDA_MEMORY. cuda: cudaMalloc. nccl: allocated by NCCL. pinned: host memory that host and
// device access at the same address, for tests that read device memory. With CUDA_LAUNCH_BLOCKING=1 all kernels have
// ended when a test reads.
enum class Kind { of_cuda, of_nccl, pinned };
Kind kind_of_memory() {
  const char* const given = std::getenv("GYR_CUDA_MEMORY");
  const std::string_view wanted = given ? given : "cuda";
  require(wanted == "cuda" || wanted == "nccl" || wanted == "pinned", Exit::usage, "GYR_CUDA_MEMORY must be cuda, nccl or pinned, not '{}'", wanted);
  return wanted == "nccl" ? Kind::of_nccl : (wanted == "pinned" ? Kind::pinned : Kind::of_cuda);
}
bool pinned() { return kind_of_memory() == Kind::pinned; }

void* memory_of_cuda(Index bytes, bool pinned) {
  void* memory = nullptr;
  const cudaError_t error = pinned ? cudaMallocHost(&memory, std::size_t(bytes)) : cudaMalloc(&memory, std::size_t(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which null reports, so that it is not attributed to a later kernel
    return nullptr;
  }
  cuda::check(error, "memory allocation");
  return memory;
}

}  // namespace

std::string name() {
  const std::string library = cuda::FusedLibrary::is_there() ? " with " + cuda::FusedLibrary::version() : "";
  return fmt::format("cuda {}{}, for GPUs {}", cuda::runtime_version(), library, cuda::compiled_gpus());
}

bool on_gpu() { return true; }

bool host_reads_memory() { return pinned(); }

void* take_memory(Index bytes) {
  cuda::take_device();
  const Kind kind = kind_of_memory();
  void* const memory = kind == Kind::of_nccl ? allocate_nccl_memory(bytes) : memory_of_cuda(bytes, kind == Kind::pinned);
  if (memory && kind != Kind::pinned) cuda::DeviceMemoryRegistry::of_process().take(memory, bytes);
  return memory;
}
void return_memory(void* memory) {
  const Kind kind = kind_of_memory();
  if (kind == Kind::pinned) {
    cudaFreeHost(memory);
    return;
  }
  cuda::DeviceMemoryRegistry::of_process().give_back(memory);
  if (kind == Kind::of_nccl) free_nccl_memory(memory);
  else cudaFree(memory);
}

void copy_on_device(const Queue& queue, const void* from, void* to, Index bytes) {
  check(cudaMemcpyAsync(to, from, std::size_t(bytes), cudaMemcpyDeviceToDevice, queue.state().stream), "device-to-device copy");
  if (pinned()) queue.fence();
}
void copy_to_host(const void* from, void* to, Index bytes) {
  check(cudaMemcpy(to, from, std::size_t(bytes), cudaMemcpyDeviceToHost), "device-to-host copy");
}
void copy_to_device(const void* from, void* to, Index bytes) {
  check(cudaMemcpy(to, from, std::size_t(bytes), cudaMemcpyHostToDevice), "host-to-device copy");
}

}  // namespace backend

}  // namespace gyr
