// SPDX-License-Identifier: BSD-3-Clause
// Schedules are data: the list of tasks of one rank of a pipeline. The run executes it, the simulator times it, tests read it.
//   p ranks, v chunks of layers per rank (chunk c of rank r is global stage c p + r), m micro-batches
#pragma once

#include <string>
#include <vector>

namespace gyr {

enum class TaskKind { receive_input, forward, send_output, receive_gradient, backward, send_gradient };
std::string_view name_of(TaskKind);

struct Task {
  TaskKind kind;
  int chunk, micro;
  bool operator==(const Task&) const = default;
};

struct PipelineShape {
  int ranks, chunks, micros;
  int stages() const { return ranks * chunks; }
};

// One forward, one backward (PipeDream-flush): rank r warms up with min(p-r-1, m) forwards, then alternates, then drains.
std::vector<Task> one_f_one_b(const PipelineShape&, int rank);

// Forwards alone, in order: for evaluation.
std::vector<Task> forward_only(const PipelineShape&, int rank);

// Micro-batches whose activations a rank holds at once under a schedule: the number of slots it needs.
int in_flight(const std::vector<Task>&);

// One line per task, for people.
std::string to_text(const std::vector<Task>&);

}  // namespace gyr
