// SPDX-License-Identifier: BSD-3-Clause
// Graphs of CUDA: what streams are told while they are captured is kept, with its arguments as they were, and told again as often as the graph is
// launched. A capture begins in one stream; others join it by waiting for an event of it, and must be waited for before it ends. What CUDA forbids
// meanwhile ends it with the error that CUDA's documentation names. There is one capture at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <map>

#include "kernels/cuda/emulation/streams.hpp"

namespace gyr::cuda {

struct GraphNode {
  std::string name;
  std::function<void()> begin;
  std::function<bool()> poll;
  int branch;              // streams of the capture, by the order in which they came; 0: where it began
  std::vector<int> after;  // nodes
};

struct Graph {
  std::vector<GraphNode> nodes;
  int branches = 1;
};

class Capture {
 public:
  Capture(Stream* origin, cudaStreamCaptureMode mode) : origin_(origin), mode_(mode) { captured_[origin] = {}; }

  // Of this process; null where there is none.
  static Capture* current();
  static cudaError_t begin(Stream* origin, cudaStreamCaptureMode);
  static cudaError_t end(Stream* origin, Graph** graph);

  bool has(const Stream* s) const { return captured_.contains(s); }
  // What the stream is told becomes a node.
  void add(const Stream*, std::string name, std::function<void()> begin, std::function<bool()> poll);
  // Nodes that come before what the stream is told next, as an event keeps them; and another stream, or this one, waits for them.
  std::vector<int> moment(const Stream* s) const { return captured_.at(s).after; }
  void join(const Stream*, const std::vector<int>& nodes);
  // Nothing of it is of use from now on; the same error.
  cudaError_t invalidate(cudaError_t);
  // Of calls that take memory or ask for what may be under way, which only a relaxed capture allows.
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

// A graph with streams for its branches.
class LaunchedGraph {
 public:
  explicit LaunchedGraph(const Graph&);
  ~LaunchedGraph();
  LaunchedGraph(const LaunchedGraph&) = delete;
  // Behind what the stream was told, and before what it is told next.
  void launch(Stream*);

 private:
  Graph graph_;
  std::vector<Stream*> branches_;  // but the first
};

}  // namespace gyr::cuda
