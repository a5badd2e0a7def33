// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous copies between device and host: one stream per direction, ordered with the device's compute stream by
// events.
#include "kernels/device/host_copies.hpp"

#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/signal.hpp"

namespace gyr {

using cuda::check;

namespace {

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "copy stream creation"); }
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

struct HostCopies::State {
  explicit State(const Queue& q) : queue(q) {}

  Ticket enqueue(cudaStream_t way, std::span<const HostCopy> copies, cudaMemcpyKind kind) {
    now.record(queue.state().stream);
    now.wait_in(way);
    for (const HostCopy& c : copies) check(cudaMemcpyAsync(c.to, c.from, std::size_t(c.bytes), kind, way), "copy between device and host");
    if (free.empty()) free.push_back(int(done.size())), done.emplace_back();
    const Ticket ticket = free.back();
    free.pop_back();
    done[ticket].record(way);
    return ticket;
  }

  Queue queue;
  Stream out, back;
  cuda::Signal now;
  std::vector<cuda::Signal> done;  // completion events, indexed by ticket
  std::vector<Ticket> free;        // tickets that have been waited for and can be reused
};

bool HostCopies::overlap() { return true; }

HostCopies::HostCopies(const Queue& queue) : state_(std::make_unique<State>(queue)) {}
HostCopies::~HostCopies() = default;

HostCopies::Ticket HostCopies::out(std::span<const HostCopy> copies) { return state_->enqueue(state_->out, copies, cudaMemcpyDeviceToHost); }
HostCopies::Ticket HostCopies::back(std::span<const HostCopy> copies) { return state_->enqueue(state_->back, copies, cudaMemcpyHostToDevice); }
void HostCopies::device_waits(Ticket ticket) {
  state_->done[std::size_t(ticket)].wait_in(state_->queue.state().stream);
  state_->free.push_back(ticket);
}

namespace backend {

void* allocate_host_memory(Index bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, std::size_t(bytes)) == cudaSuccess) return memory;
  cudaGetLastError();  // clears the error, so that it is not attributed to a later kernel
  return nullptr;
}
void free_host_memory(void* memory) { cudaFreeHost(memory); }

}  // namespace backend

}  // namespace gyr
