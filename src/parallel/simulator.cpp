// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/simulator.hpp"

#include <map>
#include <optional>
#include <tuple>

#include "kernels/error.hpp"

namespace gyr {

namespace {

// What travels between global stages: the output of a stage's forward, or the gradient its backward leaves.
using Message = std::tuple<TaskKind, int, int>;  // kind of send, sending stage, micro-batch

std::optional<Message> awaited(const Task& task, int stage) {
  if (task.kind == TaskKind::receive_input) return Message{TaskKind::send_output, stage - 1, task.micro};
  if (task.kind == TaskKind::receive_gradient) return Message{TaskKind::send_gradient, stage + 1, task.micro};
  return {};
}

}  // namespace

double idle_part(const PipelineShape& shape) { return double(shape.ranks - 1) / double(shape.micros + shape.ranks - 1); }

Simulation simulate(const PipelineShape& shape, const std::vector<std::vector<Task>>& lists, const TaskCosts& costs) {
  Simulation result;
  result.busy.assign(shape.ranks, 0);
  std::vector<double> clock(shape.ranks, 0);
  std::vector<std::size_t> next(shape.ranks, 0);
  std::map<Message, double> sent;
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (; next[rank] < lists[rank].size(); ++next[rank], progress = true) {
        const Task& task = lists[rank][next[rank]];
        const int stage = task.chunk * shape.ranks + rank;
        if (const auto message = awaited(task, stage)) {
          const auto arrival = sent.find(*message);
          if (arrival == sent.end()) break;
          clock[rank] = std::max(clock[rank], arrival->second + costs.transfer);
        } else if (task.kind == TaskKind::send_output || task.kind == TaskKind::send_gradient) {
          sent[{task.kind, stage, task.micro}] = clock[rank];
        } else {
          const double cost = task.kind == TaskKind::forward ? costs.forward : costs.backward;
          clock[rank] += cost;
          result.busy[rank] += cost;
        }
      }
  }
  std::string stuck;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    if (next[rank] < lists[rank].size()) {
      const Task& task = lists[rank][next[rank]];
      stuck += fmt::format(" rank {} at '{}' of chunk {}, micro-batch {};", rank, name_of(task.kind), task.chunk, task.micro);
    }
    result.makespan = std::max(result.makespan, clock[rank]);
  }
  ensure(stuck.empty(), "the schedule deadlocks:{}", stuck);
  return result;
}

}  // namespace gyr
