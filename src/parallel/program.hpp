// SPDX-License-Identifier: BSD-3-Clause
// Program of a pipeline rank: all tasks of a step in order, namely the turns of a schedule with their transfers,
// activation slots and reductions. The executor runs it, the simulator times it, the planner counts it, and tests read
// it.
#pragma once

#include <string>

#include "src/parallel/layout.hpp"
#include "src/parallel/schedule.hpp"

namespace gyr {

enum class Payload { activations, gradients };

struct Task {
  Op op;
  int chunk = 0;            // index of the chunk on this rank
  int micro = -1;           // index of the micro-batch of a computation or transfer; -1: none
  int slot = -1;            // index of the chunk's slot that holds this micro-batch; -1: none
  Span parts{};             // computations: parts of the chunk to run; backwards run them from last to first
  bool last_use = false;    // after this task, the slot only has data that a pending send reads
  Payload payload{};        // transfers: content of the message, activations or gradients
  int peer = -1, tag = -1;  // transfers: pipeline rank of the peer; tag, unique among the pending messages between the two ranks
  int bucket = -1;          // clear, reduce, gather: index of the bucket; -1: another task
  int buffer = -1;          // clear, reduce, gather: index of the double buffer; -1: the bucket has memory of its own
  bool operator==(const Task&) const = default;
};
bool is_computation(const Task&);  // true for a forward, a backward, or half of a backward

struct Program {
  PipelineShape shape;
  std::vector<Task> tasks;
  std::vector<int> slots;  // number of activation slots of each chunk
};

// Parts (embedding, layers, head) of a rank's chunks, numbered from first to last, and the buckets of their weights,
// numbered from the last part to the first.
struct BucketPlan {
  std::vector<int> parts;                 // number of parts of each chunk; empty: every chunk is one part
  std::vector<std::vector<int>> buckets;  // buckets of each part; empty: nothing is reduced or gathered
  std::vector<bool> kept_unsharded;       // per bucket: unsharded in memory of its own, from its first use in a step to the last
  bool head = false;                      // the last part is the head, whose weight gradients are computed in the forward
  Shard shard = Shard::none;
  bool operator==(const BucketPlan&) const = default;

  Span of(int chunk) const;
};

// Message tags are taken modulo this number, because MPI only guarantees tags up to 32767. Messages between two ranks
// are received in the order in which they are sent.
inline constexpr int message_tags = 1 << 15;

PipelineShape pipeline_shape(const Layout&, int micros);

// Compiles the program of a rank. With buckets, the last backward of every chunk is one task per part, each bucket is reduced as soon as its
// gradients are complete, and the optimizer step follows. ZeRO sharding adds the following tasks and makes computations that need them one task
// per part:
//   optimizer  (ZeRO-1) after the step, every bucket is gathered, in the order in which the next forward needs them
//   gradients  (ZeRO-2) likewise; gradients are in two buffers: a bucket is reduced before another one takes its buffer
//   weights    (ZeRO-3) gradients as in ZeRO-2, and weights are in two buffers too: the next bucket is gathered before the computation with the
//              present one, and nothing is gathered after the step
Program compile(Schedule, const PipelineShape&, int rank, const BucketPlan& = {});

// One line per task, human-readable.
std::string to_text(const Program&);

}  // namespace gyr
