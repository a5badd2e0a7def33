// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.hpp"

namespace gyr {

std::string_view name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::receive_input: return "receive input";
    case TaskKind::forward: return "forward";
    case TaskKind::send_output: return "send output";
    case TaskKind::receive_gradient: return "receive gradient";
    case TaskKind::backward: return "backward";
    case TaskKind::send_gradient: return "send gradient";
  }
  return "";
}

namespace {

// Appends a forward or a backward with the transfers around it.
void forward(std::vector<Task>& list, const PipelineShape& shape, int rank, int chunk, int micro) {
  const int stage = chunk * shape.ranks + rank;
  if (stage > 0) list.push_back({TaskKind::receive_input, chunk, micro});
  list.push_back({TaskKind::forward, chunk, micro});
  if (stage < shape.stages() - 1) list.push_back({TaskKind::send_output, chunk, micro});
}
void backward(std::vector<Task>& list, const PipelineShape& shape, int rank, int chunk, int micro) {
  const int stage = chunk * shape.ranks + rank;
  if (stage < shape.stages() - 1) list.push_back({TaskKind::receive_gradient, chunk, micro});
  list.push_back({TaskKind::backward, chunk, micro});
  if (stage > 0) list.push_back({TaskKind::send_gradient, chunk, micro});
}

}  // namespace

std::vector<Task> one_f_one_b(const PipelineShape& shape, int rank) {
  ensure(shape.chunks == 1, "1F1B has one chunk per rank, not {}", shape.chunks);
  std::vector<Task> list;
  const int warm_up = std::min(shape.ranks - rank - 1, shape.micros);
  for (int i = 0; i < warm_up; ++i) forward(list, shape, rank, 0, i);
  for (int i = warm_up; i < shape.micros; ++i) {
    forward(list, shape, rank, 0, i);
    backward(list, shape, rank, 0, i - warm_up);
  }
  for (int i = shape.micros - warm_up; i < shape.micros; ++i) backward(list, shape, rank, 0, i);
  return list;
}

std::vector<Task> forward_only(const PipelineShape& shape, int rank) {
  std::vector<Task> list;
  for (int i = 0; i < shape.micros; ++i) forward(list, shape, rank, 0, i);
  return list;
}

int in_flight(const std::vector<Task>& list) {
  int now = 0, most = 0;
  for (const Task& task : list) {
    now += (task.kind == TaskKind::forward) - (task.kind == TaskKind::backward);
    most = std::max(most, now);
  }
  return most;
}

std::string to_text(const std::vector<Task>& list) {
  std::string text;
  for (const Task& task : list) text += fmt::format("{:<17} chunk {} micro {}\n", name_of(task.kind), task.chunk, task.micro);
  return text;
}

}  // namespace gyr
