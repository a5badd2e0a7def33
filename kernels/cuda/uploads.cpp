// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/uploads.hpp"

#include <cstring>
#include <deque>

#include "kernels/cuda/pinned_stock.hpp"
#include "kernels/upload.hpp"

namespace gyr {

namespace cuda {

struct Uploads::Kept {
  struct UnderWay {
    PinnedStock::Piece piece;
    cudaEvent_t fetched;
  };
  PinnedStock stock;
  std::deque<UnderWay> under_way;  // the stream ends them in this order

  void end_first() {
    cudaEventDestroy(under_way.front().fetched);
    stock.give_back(under_way.front().piece);
    under_way.pop_front();
  }
};

Uploads::Uploads() : kept_(std::make_unique<Kept>()) {}
Uploads::~Uploads() {
  for (; !kept_->under_way.empty(); kept_->end_first()) cudaEventSynchronize(kept_->under_way.front().fetched);
}

void Uploads::start(cudaStream_t stream, const void* from, void* to, Index bytes) {
  while (!kept_->under_way.empty() && cudaEventQuery(kept_->under_way.front().fetched) == cudaSuccess) kept_->end_first();
  Kept::UnderWay next{kept_->stock.take(bytes), nullptr};
  std::memcpy(next.piece.memory, from, std::size_t(bytes));
  check(cudaMemcpyAsync(to, next.piece.memory, std::size_t(bytes), cudaMemcpyHostToDevice, stream), "an upload");
  check(cudaEventCreateWithFlags(&next.fetched, cudaEventDisableTiming), "an event");
  check(cudaEventRecord(next.fetched, stream), "an event");
  kept_->under_way.push_back(next);
}

}  // namespace cuda

void backend::upload(const Queue& queue, const void* from, void* to, Index bytes) {
  queue.state().uploads.start(queue.state().stream, from, to, bytes);
}

}  // namespace gyr
