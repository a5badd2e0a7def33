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
  int bucket = -1;          // reduce
  bool operator==(const Task&) const = default;
};

struct Program {
  PipelineShape shape;
  std::vector<Task> tasks;
  std::vector<int> slots;  // of each chunk
};

// The parts (embedding, layers, head) of a rank's chunks, numbered through from the first to the last, and which of them are reduced together.
struct GradientParts {
  std::vector<int> parts;     // of each chunk; empty: every chunk is one
  std::vector<Span> buckets;  // ranges of parts

  Span of(int chunk) const;
};

// Message tags are counted modulo this: MPI promises 32767. Messages between two ranks are received in the order in which they are sent.
inline constexpr int message_tags = 1 << 15;

PipelineShape pipeline_shape(const Layout&, int micros);

// The program of a rank. With `buckets`, the last backward of every chunk is one task a part, and each bucket is reduced as soon as the
// parts in it have all they get; the last task is then the step.
Program compile(Schedule, const PipelineShape&, int rank, const GradientParts& = {});

// One line per task, for people.
std::string to_text(const Program&);

}  // namespace gyr
