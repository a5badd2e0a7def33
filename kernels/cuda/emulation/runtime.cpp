// SPDX-License-Identifier: BSD-3-Clause
// Emulation of the CUDA runtime on the emulated device; linked in its place.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/graphs.hpp"
#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/streams.hpp"

using namespace gyr::cuda;

struct CUevent_st {
  Moment moment;
  bool recorded = false;
  std::uint64_t capture = 0;  // number of the capture in which the event was recorded; 0: none
  std::vector<int> nodes;     // graph nodes that the event depends on in that capture
};

namespace {

Streams& streams() { return Streams::instance(); }
Stream* of(cudaStream_t s) { return reinterpret_cast<Stream*>(s); }

gyr::Index launched = 0;

bool is_captured(cudaStream_t s) { return Capture::current() && Capture::current()->has(of(s)); }
// Error of a launch on the stream during a capture. The default stream synchronises with all other streams, captured
// ones included.
cudaError_t launch_error(cudaStream_t s) {
  Capture* const capture = Capture::current();
  if (!capture) return cudaSuccess;
  if (!s) return capture->invalidate(cudaErrorStreamCaptureImplicit);
  return capture->has(of(s)) && !capture->valid() ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t launch_in(cudaStream_t s) {
  const cudaError_t error = launch_error(s);
  if (error == cudaSuccess && !is_captured(s)) ++launched;
  return error;
}
// Error of a host query or synchronisation of a stream (null: all streams) or of an event during a capture.
cudaError_t query_error(cudaStream_t s) {
  if (is_captured(s)) return Capture::current()->invalidate(cudaErrorStreamCaptureUnsupported);
  if (!s) return launch_error(s);
  return Capture::current() ? Capture::current()->unsafe() : cudaSuccess;
}
cudaError_t query_error(cudaEvent_t e) {
  Capture* const capture = Capture::current();
  if (e->capture > 0) return capture ? capture->invalidate(cudaErrorCapturedEvent) : cudaErrorCapturedEvent;
  return capture ? capture->unsafe() : cudaSuccess;
}
cudaError_t allocation_error() { return Capture::current() ? Capture::current()->unsafe() : cudaSuccess; }

// Host pointer for one end of a copy. An access to device memory is checked for races.
char* end_of_copy(const void* p, std::size_t bytes, Touch touch) {
  if (!is_device_memory(p)) return static_cast<char*>(const_cast<void*>(p));
  gyr::cuda::touch(p, bytes, touch);
  return resolved(p);
}

// Indices of the emulated devices that CUDA_VISIBLE_DEVICES makes visible to this process.
std::vector<int> visible_devices() {
  const char *const there = std::getenv("GYR_EMULATED_DEVICES"), *const left = std::getenv("CUDA_VISIBLE_DEVICES");
  const int count = there ? std::atoi(there) : 1;
  std::vector<int> indices;
  if (!left)
    for (int i = 0; i < count; ++i) indices.push_back(i);
  std::istringstream words(left ? left : "");
  for (std::string word; std::getline(words, word, ',');) {
    const int number = std::atoi(word.c_str());
    if (number < 0 || number >= count) break;  // as in CUDA, devices after an invalid index are hidden
    indices.push_back(number);
  }
  return indices;
}

}  // namespace

void gyr::cuda::enqueue(cudaStream_t s, const char* name, std::function<void()> work) {
  if (launch_in(s) == cudaSuccess) streams().enqueue(of(s), name, std::move(work));
}
gyr::Index gyr::cuda::launches() { return launched; }

const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched: return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit: return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = int(visible_devices().size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int number) {
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::size_t identity[] = {std::hash<std::string>()(host), std::size_t(visible_devices()[std::size_t(number)])};
  static_assert(sizeof identity == sizeof p->uuid);
  std::memcpy(&p->uuid, identity, sizeof identity);
  p->totalGlobalMem = device_memory_bytes();
  const int capability = Machine::instance().capability;
  p->major = capability / 10, p->minor = capability % 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const int capability = Machine::instance().capability;
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = device_memory_bytes();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = allocation_error(); error != cudaSuccess) return error;
  *memory = take_device_memory(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
  return_device_memory(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t error = allocation_error(); error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* memory) {
  *a = {is_device_memory(memory) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0, nullptr, nullptr};
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  if (bytes == 0) return cudaSuccess;
  const cudaError_t error = launch_in(s);
  if (error == cudaSuccess)
    streams().enqueue(of(s), "a copy", [=] {
      const char* const source = end_of_copy(from, bytes, Touch::read);
      std::memmove(end_of_copy(to, bytes, Touch::write), source, bytes);
    });
  return error;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
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
  if (const cudaError_t error = query_error(s); error != cudaSuccess) return error;
  streams().host_wait(streams().moment(of(s)));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  if (const cudaError_t error = query_error(s); error != cudaSuccess) return error;
  return streams().done(streams().moment(of(s))) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (const cudaError_t error = launch_error(s); error != cudaSuccess) return error;
  Capture* const capture = Capture::current();
  if (e->capture > 0) {
    if (!capture || capture->number() != e->capture) return cudaErrorCapturedEvent;
    capture->join(of(s), e->nodes);
    return cudaSuccess;
  }
  if (is_captured(s)) return e->recorded ? capture->invalidate(cudaErrorStreamCaptureIsolation) : cudaSuccess;
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
  if (const cudaError_t error = launch_error(s); error != cudaSuccess) return error;
  *e = {};
  e->recorded = true;
  if (is_captured(s)) e->capture = Capture::current()->number(), e->nodes = Capture::current()->moment(of(s));
  else e->moment = streams().moment(of(s));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (const cudaError_t error = query_error(e); error != cudaSuccess) return error;
  return streams().done(e->moment) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (const cudaError_t error = query_error(e); error != cudaSuccess) return error;
  streams().host_wait(e->moment);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (Capture::current()) return Capture::current()->invalidate(cudaErrorStreamCaptureUnsupported);
  streams().host_wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) { return Capture::begin(of(s), mode); }
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) { return Capture::end(of(s), reinterpret_cast<Graph**>(graph)); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = allocation_error(); error != cudaSuccess) return error;
  *e = reinterpret_cast<cudaGraphExec_t>(new LaunchedGraph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
// Child graphs are not emulated, because the program does not use them.
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  if (is_captured(s)) return Capture::current()->invalidate(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = launch_in(s); error != cudaSuccess) return error;
  reinterpret_cast<LaunchedGraph*>(e)->launch(of(s));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
  delete reinterpret_cast<LaunchedGraph*>(e);
  return cudaSuccess;
}
