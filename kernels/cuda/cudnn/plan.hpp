// SPDX-License-Identifier: BSD-3-Clause
// A description of attention as a graph of cuDNN's.
#pragma once

#include <cudnn_frontend.h>

#include "kernels/cuda/cudnn/description.hpp"

namespace gyr::cuda::cudnn {

using Graph = cudnn_frontend::graph::Graph;

// Names of tensors in a graph.
enum Name : std::int64_t { q = 1, k, v, o, stats, dout, dq, dk, dv };

// o in float, stats.
std::shared_ptr<Graph> forward_graph(const FusedAttention&);
// Sums in one order: the same bits every run.
std::shared_ptr<Graph> backward_graph(const FusedAttention&);

// Plans it, for the device of the handle or, null, for the one whose properties the graph was given; at most so many bytes of workspace. What cuDNN
// says against it; empty: nothing.
std::string planned(Graph&, cudnnHandle_t, Index workspace);

}  // namespace gyr::cuda::cudnn
