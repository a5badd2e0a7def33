// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/queue.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "kernels/cuda/runtime.hpp"
#include "kernels/error.hpp"

namespace gyr {

using cuda::check;

Queue::State::State() {
  cuda::take_device();
  check(cudaStreamCreateWithFlags(&stream, cudaStreamDefault), "a stream");
}
Queue::State::~State() {
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

Queue::Queue(bool dry_run) : state_(dry_run ? nullptr : std::make_shared<State>()) {}
void Queue::fence() const {
  if (state_) check(cudaStreamSynchronize(state_->stream), "the device's work");
}

namespace backend {

namespace {

// For tests, which look at the device's memory from the host: pinned memory, which both know by the same address. With CUDA_LAUNCH_BLOCKING=1 all is
// done when they look.
bool pinned() {
  const char* const wanted = std::getenv("GYR_CUDA_MEMORY");
  return wanted && std::string_view(wanted) == "pinned";
}

}  // namespace

std::string name() { return fmt::format("cuda {}, for GPUs {}", cuda::runtime_version(), cuda::compiled_gpus()); }

bool host_reads_memory() { return pinned(); }

void* take_memory(Index bytes) {
  cuda::take_device();
  void* memory = nullptr;
  const cudaError_t error = pinned() ? cudaMallocHost(&memory, std::size_t(bytes)) : cudaMalloc(&memory, std::size_t(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told, and no kernel's
    return nullptr;
  }
  check(error, "memory");
  return memory;
}
void return_memory(void* memory) { pinned() ? cudaFreeHost(memory) : cudaFree(memory); }

void copy_on_device(const Queue& queue, const void* from, void* to, Index bytes) {
  check(cudaMemcpyAsync(to, from, std::size_t(bytes), cudaMemcpyDeviceToDevice, queue.state().stream), "a copy on the device");
  if (pinned()) queue.fence();
}
void copy_to_host(const void* from, void* to, Index bytes) {
  check(cudaMemcpy(to, from, std::size_t(bytes), cudaMemcpyDeviceToHost), "a copy to the host");
}
void copy_to_device(const void* from, void* to, Index bytes) {
  check(cudaMemcpy(to, from, std::size_t(bytes), cudaMemcpyHostToDevice), "a copy to the device");
}

}  // namespace backend

}  // namespace gyr
