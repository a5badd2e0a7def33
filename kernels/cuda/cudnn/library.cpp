// SPDX-License-Identifier: BSD-3-Clause
// Attention with cuDNN. A plan is built when a description is first used, which takes up to a second and is not allowed
// during stream capture. Later calls enqueue the plan on the stream like any kernel.
#include <fmt/format.h>

#include <map>

#include "kernels/base/error.hpp"
#include "kernels/cuda/cudnn/plan.hpp"

namespace gyr::cuda {

namespace {

void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) fail(Exit::device, "cuDNN failed while {}: {}", what, cudnnGetErrorString(status));
}

}  // namespace

struct FusedLibrary::State {
  explicit State(CUstream_st* stream) {
    check(cudnnCreate(&handle), "creating the handle");
    check(cudnnSetStream(handle, stream), "setting the stream");
  }
  ~State() {
    forward.clear(), backward.clear();
    cudnnDestroy(handle);
  }

  using Plans = std::map<FusedAttention, std::shared_ptr<cudnn::Graph>>;  // null if cuDNN has no plan
  template <class Make>
  bool run(Plans& plans, const FusedAttention& a, Index bytes, const Make& make, std::unordered_map<std::int64_t, void*> data, void* workspace) {
    auto found = plans.find(a);
    if (found == plans.end()) {
      std::shared_ptr<cudnn::Graph> graph = make(a);
      if (!cudnn::planned(*graph, handle, bytes).empty()) graph = nullptr;
      found = plans.emplace(a, std::move(graph)).first;
    }
    if (!found->second) return false;
    cudnn_frontend::error_t error = found->second->execute(handle, data, workspace);
    if (error.is_bad()) fail(Exit::device, "cuDNN failed while running attention: {}", error.get_message());
    return true;
  }

  cudnnHandle_t handle = nullptr;
  Plans forward, backward;
};

bool FusedLibrary::is_there() { return true; }
std::string FusedLibrary::version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

FusedLibrary::FusedLibrary(CUstream_st* stream) : state_(std::make_unique<State>(stream)) {}
FusedLibrary::~FusedLibrary() = default;

namespace {

template <class T>
void* data(T* p) {  // cuDNN takes input pointers without const
  return const_cast<void*>(static_cast<const void*>(p));
}

}  // namespace

bool FusedLibrary::run(const FusedAttention& a, const FusedForward& f, void* workspace) {
  return state_->run(state_->forward, a, forward_workspace(a), cudnn::forward_graph,
                     {{cudnn::q, data(f.q)}, {cudnn::k, data(f.k)}, {cudnn::v, data(f.v)}, {cudnn::o, f.o}, {cudnn::stats, f.stats}}, workspace);
}

bool FusedLibrary::run(const FusedAttention& a, const FusedBackward& f, void* workspace) {
  return state_->run(state_->backward, a, backward_workspace(a), cudnn::backward_graph,
                     {{cudnn::q, data(f.q)},
                      {cudnn::k, data(f.k)},
                      {cudnn::v, data(f.v)},
                      {cudnn::o, data(f.o)},
                      {cudnn::dout, data(f.dout)},
                      {cudnn::stats, data(f.stats)},
                      {cudnn::dq, f.dq},
                      {cudnn::dk, f.dk},
                      {cudnn::dv, f.dv}},
                     workspace);
}

}  // namespace gyr::cuda
