// SPDX-License-Identifier: BSD-3-Clause
// CUDA's runtime on the emulated device: linked in its place.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/streams.hpp"

using namespace gyr::cuda;

struct CUevent_st {
  Moment moment;
};

namespace {

Streams& streams() { return Streams::instance(); }
Stream* of(cudaStream_t s) { return reinterpret_cast<Stream*>(s); }

// What either side has there; the device's side is judged.
char* end_of_copy(const void* p, std::size_t bytes, Touch touch) {
  if (!is_device_memory(p)) return static_cast<char*>(const_cast<void*>(p));
  gyr::cuda::touch(p, bytes, touch);
  return resolved(p);
}

// Numbers of this machine's devices, of which CUDA_VISIBLE_DEVICES leaves a process some.
std::vector<int> devices_in_sight() {
  const char *const there = std::getenv("GYR_EMULATED_DEVICES"), *const left = std::getenv("CUDA_VISIBLE_DEVICES");
  const int count = there ? std::atoi(there) : 1;
  std::vector<int> numbers;
  if (!left)
    for (int i = 0; i < count; ++i) numbers.push_back(i);
  std::istringstream words(left ? left : "");
  for (std::string word; std::getline(words, word, ',');) {
    const int number = std::atoi(word.c_str());
    if (number < 0 || number >= count) break;  // and none behind it
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

void gyr::cuda::tell(cudaStream_t s, const char* name, std::function<void()> work) { streams().tell(of(s), name, std::move(work)); }

const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorNotReady: return "device not ready";
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = int(devices_in_sight().size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int number) {
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::size_t identity[] = {std::hash<std::string>()(host), std::size_t(devices_in_sight()[std::size_t(number)])};
  static_assert(sizeof identity == sizeof p->uuid);
  std::memcpy(&p->uuid, identity, sizeof identity);
  p->totalGlobalMem = device_memory_bytes();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = device_memory_bytes();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = take_device_memory(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  cudaDeviceSynchronize();
  return_device_memory(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  cudaDeviceSynchronize();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* memory) {
  *a = {is_device_memory(memory) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0, nullptr, nullptr};
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  if (bytes > 0)
    streams().tell(of(s), "a copy", [=] {
      const char* const source = end_of_copy(from, bytes, Touch::read);
      std::memmove(end_of_copy(to, bytes, Touch::write), source, bytes);
    });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  *s = reinterpret_cast<cudaStream_t>(streams().open((flags & cudaStreamNonBlocking) == 0));
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  streams().close(of(s));
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  streams().host_wait(streams().moment(of(s)));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) { return streams().done(streams().moment(of(s))) ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  streams().wait(of(s), e->moment);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  e->moment = streams().moment(of(s));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { return streams().done(e->moment) ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  streams().host_wait(e->moment);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  streams().host_wait_for_all();
  return cudaSuccess;
}
