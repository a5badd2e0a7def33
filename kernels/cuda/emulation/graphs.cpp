// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/graphs.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace gyr::cuda {

namespace {

std::unique_ptr<Capture>& capture() {
  static std::unique_ptr<Capture> capture;
  return capture;
}
std::uint64_t captures = 0;  // number of captures so far

}  // namespace

Capture* Capture::current() { return capture().get(); }

cudaError_t Capture::begin(Stream* origin, cudaStreamCaptureMode mode) {
  if (!origin) return cudaErrorStreamCaptureUnsupported;  // the default stream cannot be captured
  if (capture()) return capture()->invalidate(cudaErrorIllegalState);
  capture() = std::make_unique<Capture>(origin, mode);
  capture()->number_ = ++captures;
  return cudaSuccess;
}

cudaError_t Capture::end(Stream* origin, Graph** graph) {
  *graph = nullptr;
  if (!capture() || !capture()->has(origin)) return cudaErrorIllegalState;
  if (capture()->origin_ != origin) return capture()->invalidate(cudaErrorStreamCaptureUnmatched);
  const std::unique_ptr<Capture> ended = std::move(capture());
  if (!ended->valid_) return cudaErrorStreamCaptureInvalidated;
  if (!ended->all_joined()) return cudaErrorStreamCaptureUnjoined;
  *graph = new Graph(std::move(ended->graph_));
  return cudaSuccess;
}

void Capture::add(const Stream* s, std::string name, std::function<void()> begin, std::function<bool()> poll) {
  Branch& branch = captured_.at(s);
  const int node = int(graph_.nodes.size());
  graph_.nodes.push_back({std::move(name), std::move(begin), std::move(poll), branch.number, std::exchange(branch.after, {node})});
}

void Capture::join(const Stream* s, const std::vector<int>& nodes) {
  if (!has(s)) captured_[s].number = graph_.branches++;
  std::vector<int>& after = captured_.at(s).after;
  for (const int node : nodes)
    if (std::find(after.begin(), after.end(), node) == after.end()) after.push_back(node);
}

cudaError_t Capture::invalidate(cudaError_t why) {
  valid_ = false;
  return why;
}

// True if the next work on the origin stream depends on all nodes.
bool Capture::all_joined() const {
  std::vector<int> open = captured_.at(origin_).after;
  std::set<int> before;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!before.insert(node).second) continue;
    const std::vector<int>& earlier = graph_.nodes[std::size_t(node)].after;
    open.insert(open.end(), earlier.begin(), earlier.end());
  }
  return before.size() == graph_.nodes.size();
}

LaunchedGraph::LaunchedGraph(const Graph& graph) : graph_(graph) {
  for (int i = 1; i < graph_.branches; ++i) branches_.push_back(Streams::instance().open(false));
}
LaunchedGraph::~LaunchedGraph() {
  for (Stream* const branch : branches_) Streams::instance().close(branch);
}

void LaunchedGraph::launch(Stream* s) {
  Streams& streams = Streams::instance();
  const auto of_branch = [&](int branch) { return branch == 0 ? s : branches_[std::size_t(branch) - 1]; };
  std::vector<Moment> done;  // for each node, the position in its stream after the node's work
  for (Stream* const branch : branches_) streams.wait(branch, streams.moment(s));
  for (const GraphNode& node : graph_.nodes) {
    for (const int earlier : node.after)
      if (graph_.nodes[std::size_t(earlier)].branch != node.branch) streams.wait(of_branch(node.branch), done[std::size_t(earlier)]);
    streams.enqueue(of_branch(node.branch), node.name, node.begin, node.poll);
    done.push_back(streams.moment(of_branch(node.branch)));
  }
  for (Stream* const branch : branches_) streams.wait(s, streams.moment(branch));
}

}  // namespace gyr::cuda
