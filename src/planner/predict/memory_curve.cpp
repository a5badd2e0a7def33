// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/memory_curve.hpp"

#include "src/planner/predict/rank_costs.hpp"

namespace gyr {

namespace {

std::map<TaskKey, Alive> alive_of(const StageRun& run) {
  std::map<TaskKey, Alive> alive;
  for (std::size_t i = 0; i < run.plan.tasks.of_task.size(); ++i)
    alive.try_emplace(TaskKey(run.program.tasks[i], run.program.shape.micros), run.plan.tasks.counts[std::size_t(run.plan.tasks.of_task[i])].alive);
  return alive;
}

}  // namespace

// The same sum as in a dry run (src/engine/step/dry_count.cpp).
std::vector<MemoryMoment> memory_curve(const StageRun& run, const Program& program, const std::vector<TaskSpan>& times) {
  const std::map<TaskKey, Alive> alive = alive_of(run);
  std::map<std::pair<int, int>, Index> slots;  // by chunk and slot: bytes kept in the slot
  std::vector<MemoryMoment> curve;
  Index kept = 0;
  double now = 0;
  for (std::size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.micro < 0) continue;
    const Alive& of_task = alive.at(TaskKey(task, program.shape.micros));
    const auto slot = slots.try_emplace({task.chunk, task.slot}, 0).first;
    const Index during = kept - slot->second + of_task.most;
    kept += (task.last_use ? 0 : of_task.after) - slot->second;
    slot->second = task.last_use ? 0 : of_task.after;
    if (slot->second == 0) slots.erase(slot);
    const bool is_transfer = task.op == Op::send || task.op == Op::receive;  // transfers are asynchronous: the rank does not wait for them
    if (!is_transfer) now = times.at(i).end;
    curve.push_back({is_transfer ? now : times.at(i).begin, now, kept, during, int(slots.size())});
  }
  return curve;
}

}  // namespace gyr
