// SPDX-License-Identifier: BSD-3-Clause
// Translation of a description of attention to a cuDNN graph.
#pragma once

#include <cudnn_frontend.h>

#include "kernels/cuda/cudnn/description.hpp"

namespace gyr::cuda::cudnn {

using Graph = cudnn_frontend::graph::Graph;

// Ids of the tensors in a graph.
enum Name : std::int64_t { q = 1, k, v, o, stats, dout, dq, dk, dv };

// Forward graph with the outputs o (fp32) and stats.
std::shared_ptr<Graph> forward_graph(const FusedAttention&);
// Backward graph with the deterministic algorithm: sums are added in a fixed order, so results are bitwise
// reproducible.
std::shared_ptr<Graph> backward_graph(const FusedAttention&);

// Builds execution plans that use at most `workspace` bytes. They are for the device of the handle, or, if the handle
// is null, for the device whose properties the graph was given. Returns cuDNN's error message, or an empty string on
// success.
std::string planned(Graph&, cudnnHandle_t, Index workspace);

}  // namespace gyr::cuda::cudnn
