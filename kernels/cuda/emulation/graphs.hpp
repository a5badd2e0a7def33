// SPDX-License-Identifier: BSD-3-Clause
// Emulation of CUDA graphs. Work that is launched on streams during a capture is stored with its arguments and launched
// again whenever the graph is launched. A capture begins in one stream. Other streams join it by waiting for one of its
// events, and the first stream must wait for them before the capture ends. A call that CUDA forbids during capture
// invalidates it with the error given in CUDA's documentation. Only one capture can be active at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <map>

#include "kernels/cuda/emulation/streams.hpp"

namespace gyr::cuda {

struct GraphNode {
  std::string name;
  std::function<void()> begin;
  std::function<bool()> poll;
  int branch;              // index of the stream in the capture, in order of joining; 0: the stream where the capture began
  std::vector<int> after;  // indices of the nodes that must finish first
};

struct Graph {
  std::vector<GraphNode> nodes;
  int branches = 1;
};

class Capture {
 public:
  Capture(Stream* origin, cudaStreamCaptureMode mode) : origin_(origin), mode_(mode) { captured_[origin] = {}; }

  // Active capture of this process, or null.
  static Capture* current();
  static cudaError_t begin(Stream* origin, cudaStreamCaptureMode);
  static cudaError_t end(Stream* origin, Graph** graph);

  bool has(const Stream* s) const { return captured_.contains(s); }
  // Adds work launched on the stream as a node.
  void add(const Stream*, std::string name, std::function<void()> begin, std::function<bool()> poll);
  // moment(): nodes that the next work on the stream depends on, as an event records them. join(): makes a stream
  // depend on these nodes and adds it to the capture.
  std::vector<int> moment(const Stream* s) const { return captured_.at(s).after; }
  void join(const Stream*, const std::vector<int>& nodes);
  // Marks the capture as invalid and returns the same error.
  cudaError_t invalidate(cudaError_t);
  // Check for calls that allocate memory or query work in flight, which only a relaxed capture allows. Otherwise it
  // invalidates the capture.
  cudaError_t unsafe() { return mode_ == cudaStreamCaptureModeRelaxed ? cudaSuccess : invalidate(cudaErrorStreamCaptureUnsupported); }
  bool valid() const { return valid_; }
  std::uint64_t number() const { return number_; }

 private:
  struct Branch {
    int number = 0;
    std::vector<int> after;
  };
  bool all_joined() const;

  const Stream* origin_;
  cudaStreamCaptureMode mode_;
  bool valid_ = true;
  std::uint64_t number_ = 0;
  Graph graph_;
  std::map<const Stream*, Branch> captured_;
};

// Instantiated graph, with one stream for each branch.
class LaunchedGraph {
 public:
  explicit LaunchedGraph(const Graph&);
  ~LaunchedGraph();
  LaunchedGraph(const LaunchedGraph&) = delete;
  // Launches the graph on a stream, after its earlier work and before its later work.
  void launch(Stream*);

 private:
  Graph graph_;
  std::vector<Stream*> branches_;  // streams of all branches except branch 0
};

}  // namespace gyr::cuda
