// SPDX-License-Identifier: BSD-3-Clause
// Pipeline schedules as data: the order in which a pipeline rank computes. Transfers, activation memory and the time of
// gradient reductions follow from it (program.hpp).
//   p ranks, v chunks of layers on each (chunk c of rank r is global stage c p + r), m micro-batches
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace gyr {

enum class Op {
  forward,
  backward,          // gradients of the input and of all weights
  backward_input,    // gradients of the input, and of weights that are vectors
  backward_weights,  // weight gradients that backward_input has postponed
  send,
  receive,
  clear,   // sets the gradients of a bucket in a buffer to zero
  reduce,  // starts the reduction of a bucket of gradients over the data axis
  gather,  // starts the all-gather of a bucket of weights from the ranks that hold its ZeRO shards
  step     // optimizer step
};
std::string_view name_of(Op);

// Pipeline of `ranks` ranks with `chunks` chunks (virtual stages) each, and `micros` micro-batches per step. Comments
// below call these p, v and m.
struct PipelineShape {
  int ranks = 1, chunks = 1, micros = 1;
  int stages() const { return ranks * chunks; }
  int stage(int rank, int chunk) const { return chunk * ranks + rank; }
  bool operator==(const PipelineShape&) const = default;
};

// A computation of one chunk on one micro-batch.
struct PipelineStep {
  Op op;
  int chunk, micro;
  bool operator==(const PipelineStep&) const = default;
};

using Schedule = std::vector<PipelineStep> (*)(const PipelineShape&, int rank);

// Forwards only, in groups of p micro-batches (p pipeline ranks) through all chunks: for evaluation.
std::vector<PipelineStep> forward_only(const PipelineShape&, int rank);

// All forwards, then all backwards (GPipe). One chunk.
std::vector<PipelineStep> all_forward_all_backward(const PipelineShape&, int rank);

// One forward, one backward (PipeDream-flush): of p pipeline ranks, rank r warms up with min(p-r-1, m) of m forwards,
// then alternates, then drains. One chunk.
std::vector<PipelineStep> one_f_one_b(const PipelineShape&, int rank);

// 1F1B over v chunks per rank, p pipeline ranks and m micro-batches (Narayanan et al. 2021). Micro-batches run in
// groups of p, each group through all chunks. Rank r warms up with min(2(p-r-1) + (v-1)p, m v) forwards. If p does not
// divide m, the order is that of the next multiple without the missing micro-batches.
std::vector<PipelineStep> interleaved(const PipelineShape&, int rank);

// 1F1B with split backwards (ZB-H1, Qi et al. 2024): rank r postpones the weight gradients of r micro-batches to fill
// the bubble, and holds no more activations than rank 0 of 1F1B. One chunk.
std::vector<PipelineStep> zero_bubble(const PipelineShape&, int rank);

// A schedule that a deck can select by name.
struct NamedSchedule {
  std::string_view name;
  Schedule schedule;
};
inline constexpr std::array<NamedSchedule, 3> schedules{{{"1f1b", one_f_one_b}, {"gpipe", all_forward_all_backward}, {"zero_bubble", zero_bubble}}};

// Maximum number of micro-batches whose activations a rank holds at once for a chunk, from the forward to the end of
// the backward.
int in_flight(const std::vector<PipelineStep>&, int chunk = 0);

}  // namespace gyr
