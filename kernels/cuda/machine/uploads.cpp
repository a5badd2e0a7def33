// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous host-to-device copies through pinned memory.
#include "kernels/cuda/machine/uploads.hpp"

#include <cstring>
#include <deque>

#include "kernels/cuda/machine/pinned_stock.hpp"
#include "kernels/device/upload.hpp"

namespace gyr {

namespace cuda {

struct Uploads::Kept {
  struct InFlight {
    PinnedStock::Piece piece;
    cudaEvent_t fetched;
  };
  PinnedStock stock;
  std::deque<InFlight> in_flight;  // uploads that may not be complete, in the order in which the stream completes them

  void end_first() {
    cudaEventDestroy(in_flight.front().fetched);
    stock.give_back(in_flight.front().piece);
    in_flight.pop_front();
  }
};

Uploads::Uploads() : kept_(std::make_unique<Kept>()) {}
Uploads::~Uploads() {
  for (; !kept_->in_flight.empty(); kept_->end_first()) cudaEventSynchronize(kept_->in_flight.front().fetched);
}

void Uploads::start(cudaStream_t stream, const void* from, void* to, Index bytes) {
  while (!kept_->in_flight.empty() && cudaEventQuery(kept_->in_flight.front().fetched) == cudaSuccess) kept_->end_first();
  Kept::InFlight next{kept_->stock.take(bytes), nullptr};
  std::memcpy(next.piece.memory, from, std::size_t(bytes));
  check(cudaMemcpyAsync(to, next.piece.memory, std::size_t(bytes), cudaMemcpyHostToDevice, stream), "host-to-device upload");
  check(cudaEventCreateWithFlags(&next.fetched, cudaEventDisableTiming), "event creation");
  check(cudaEventRecord(next.fetched, stream), "event record");
  kept_->in_flight.push_back(next);
}

}  // namespace cuda

void backend::upload(const Queue& queue, const void* from, void* to, Index bytes) {
  queue.state().uploads.start(queue.state().stream, from, to, bytes);
}

}  // namespace gyr
