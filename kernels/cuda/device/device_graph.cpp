// SPDX-License-Identifier: BSD-3-Clause
// CUDA graph capture and replay.
#include "kernels/device/device_graph.hpp"

#include "kernels/base/error.hpp"
#include "kernels/cuda/comm/nccl_transport.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

using cuda::check;

struct DeviceGraph::State {
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

// With host_reads_memory(), copies make the host wait, which is not allowed during a capture.
bool DeviceGraph::possible() { return cuda::environment_allows("GYR_CUDA_GRAPHS") && !backend::host_reads_memory(); }

// Other transports make the host wait, which is not allowed during a capture.
bool DeviceGraph::possible_with(const Transport& transport) { return transport.size() == 1 || is_nccl(transport); }

DeviceGraph::DeviceGraph() = default;
DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;

void DeviceGraph::capture(const Queue& queue, const std::function<void()>& enqueue) {
  auto state = std::make_unique<State>();
  const cudaStream_t stream = queue.state().stream;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "start of a stream capture");
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &state->captured);
    throw;
  }
  check(cudaStreamEndCapture(stream, &state->captured), "end of a stream capture");
  check(cudaGraphInstantiate(&state->launched, state->captured, 0), "graph instantiation");
  state_ = std::move(state);
}

void DeviceGraph::launch(const Queue& queue) const {
  ensure(captured(), "launch of a CUDA graph that has not been captured");
  check(cudaGraphLaunch(state_->launched, queue.state().stream), "graph launch");
}

}  // namespace gyr
