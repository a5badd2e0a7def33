// SPDX-License-Identifier: BSD-3-Clause
// CUDA's graphs.
#include "kernels/work_graph.hpp"

#include "kernels/cuda/runtime.hpp"
#include "kernels/error.hpp"
#include "kernels/nccl/transport.hpp"

namespace gyr {

using cuda::check;

struct WorkGraph::State {
  State() = default;
  ~State() {
    if (launched) cudaGraphExecDestroy(launched);
    if (captured) cudaGraphDestroy(captured);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  cudaGraph_t captured = nullptr;
  cudaGraphExec_t launched = nullptr;
};

// Where the host reads the device's memory, it waits for copies.
bool WorkGraph::possible() { return cuda::environment_allows("GYR_CUDA_GRAPHS") && !backend::host_reads_memory(); }

// Elsewhere the host waits.
bool WorkGraph::possible_with(const Transport& transport) { return transport.size() == 1 || is_nccl(transport); }

WorkGraph::WorkGraph() = default;
WorkGraph::~WorkGraph() = default;
WorkGraph::WorkGraph(WorkGraph&&) noexcept = default;
WorkGraph& WorkGraph::operator=(WorkGraph&&) noexcept = default;

void WorkGraph::capture(const Queue& queue, const std::function<void()>& tell) {
  auto state = std::make_unique<State>();
  const cudaStream_t stream = queue.state().stream;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "the begin of a capture");
  try {
    tell();
  } catch (...) {
    cudaStreamEndCapture(stream, &state->captured);
    throw;
  }
  check(cudaStreamEndCapture(stream, &state->captured), "a capture");
  check(cudaGraphInstantiate(&state->launched, state->captured, 0), "a graph");
  state_ = std::move(state);
}

void WorkGraph::launch(const Queue& queue) const {
  ensure(captured(), "a graph is launched that has not been captured");
  check(cudaGraphLaunch(state_->launched, queue.state().stream), "a graph");
}

}  // namespace gyr
