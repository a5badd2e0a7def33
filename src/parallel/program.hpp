// SPDX-License-Identifier: BSD-3-Clause
// All that a rank of a pipeline does in a step, task after task: the turns of a schedule with their transfers, memory and reductions. The run
// executes it, the simulator times it, the plan counts it, tests read it.
#pragma once

#include <string>

#include "src/parallel/layout.hpp"
#include "src/parallel/schedule.hpp"

namespace gyr {

enum class Payload { activations, gradients };

struct Task {
  Op op;
  int chunk = 0;            // of this rank
  int micro = -1;           // computations and transfers
  int slot = -1;            // the same: which of the chunk's slots holds the micro-batch
  Span parts{};             // computations: the parts of the chunk that are run through; backwards from the last to the first
  bool last_use = false;    // nothing is in the slot behind this task but what a send still reads
  Payload payload{};        // transfers
  int peer = -1, tag = -1;  // transfers: rank of the pipeline, and a number that no other message between the two has at that time
  int bucket = -1;          // clear, reduce, gather
  int buffer = -1;          // the same: which of the two that take turns; -1: the bucket has a place of its own
  bool operator==(const Task&) const = default;
};
bool is_computation(const Task&);  // a forward or a backward, or half of one

struct Program {
  PipelineShape shape;
  std::vector<Task> tasks;
  std::vector<int> slots;  // of each chunk
};

// The parts (embedding, layers, head) of a rank's chunks, numbered through from the first to the last, and the buckets their weights are in,
// numbered from the last part to the first.
struct BucketPlan {
  std::vector<int> parts;                 // of each chunk; empty: every chunk is one
  std::vector<std::vector<int>> buckets;  // of each part; empty: nothing is reduced or gathered
  std::vector<bool> kept_whole;           // each bucket: in a place of its own from its first use in a step to the last
  bool head = false;                      // the last part is the head, which is done with its weights in the forward
  Shard shard = Shard::none;
  bool operator==(const BucketPlan&) const = default;

  Span of(int chunk) const;
};

// Message tags are counted modulo this: MPI promises 32767. Messages between two ranks are received in the order in which they are sent.
inline constexpr int message_tags = 1 << 15;

PipelineShape pipeline_shape(const Layout&, int micros);

// The program of a rank. With buckets, the last backward of every chunk is one task a part, and each bucket is reduced as soon as the
// parts in it have all they get; then the step. What is cut among ranks adds to that, computations with it being one task a part:
//   optimizer  behind the step every bucket is gathered, in the order in which the next forward needs them
//   gradients  they lie in two buffers: a bucket is reduced whenever another one takes its turn
//   weights    so do they: the next bucket that is needed is gathered before the computation with the present one
Program compile(Schedule, const PipelineShape&, int rank, const BucketPlan& = {});

// One line per task, for people.
std::string to_text(const Program&);

}  // namespace gyr
