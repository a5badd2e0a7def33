// SPDX-License-Identifier: BSD-3-Clause
// Schedules are data: the order in which a rank of a pipeline computes. What travels, where it lies and when gradients are summed follows
// from it (program.hpp).
//   p ranks, v chunks of layers on each (chunk c of rank r is global stage c p + r), m micro-batches
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace gyr {

enum class Op {
  forward,
  backward,          // gradients of the input and of the weights
  backward_input,    // of the input, and of weights that are vectors
  backward_weights,  // what backward_input has left
  send,
  receive,
  clear,   // gradients of a bucket begin at zero in a buffer
  reduce,  // the sum of a bucket of gradients over the data axis begins
  gather,  // weights of a bucket begin to come from the ranks that keep parts of them
  step     // the optimizer
};
std::string_view name_of(Op);

struct PipelineShape {
  int ranks = 1, chunks = 1, micros = 1;
  int stages() const { return ranks * chunks; }
  int stage(int rank, int chunk) const { return chunk * ranks + rank; }
  bool operator==(const PipelineShape&) const = default;
};

// A computation of one chunk on one micro-batch.
struct Turn {
  Op op;
  int chunk, micro;
  bool operator==(const Turn&) const = default;
};

using Schedule = std::vector<Turn> (*)(const PipelineShape&, int rank);

// Forwards alone, in groups of p through all chunks: for evaluation.
std::vector<Turn> forward_only(const PipelineShape&, int rank);

// All forwards, then all backwards (GPipe). One chunk.
std::vector<Turn> all_forward_all_backward(const PipelineShape&, int rank);

// One forward, one backward (PipeDream-flush): rank r warms up with min(p-r-1, m) forwards, then alternates, then drains. One chunk.
std::vector<Turn> one_f_one_b(const PipelineShape&, int rank);

// 1F1B over v chunks (Narayanan et al. 2021): micro-batches in groups of p, each group through all chunks; rank r warms up with
// min(2(p-r-1) + (v-1)p, m v) forwards. Where p does not divide m, the order of the next multiple without what is not there.
std::vector<Turn> interleaved(const PipelineShape&, int rank);

// 1F1B whose backwards are split (ZB-H1, Qi et al. 2024): rank r leaves the gradients of the weights of r micro-batches for when it would
// wait, and holds no more activations than rank 0 of 1F1B. One chunk.
std::vector<Turn> zero_bubble(const PipelineShape&, int rank);

// A schedule that a deck may ask for by name.
struct NamedSchedule {
  std::string_view name;
  Schedule schedule;
};
inline constexpr std::array<NamedSchedule, 3> schedules{{{"1f1b", one_f_one_b}, {"gpipe", all_forward_all_backward}, {"zero_bubble", zero_bubble}}};

// Micro-batches whose activations a rank holds at once for a chunk: from the forward to the end of the backward.
int in_flight(const std::vector<Turn>&, int chunk = 0);

}  // namespace gyr
