// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_count.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

DryCount::DryCount(Device& device, Grid& grid, const Program& program) : device_(device), grid_(grid), micros_(program.shape.micros) {
  for (const int slots : program.slots) alive_.emplace_back(slots, 0);
}

void DryCount::take(const Task& task, const std::function<Alive()>& run) {
  int place = -1;
  if (task.micro <= 0 || task.micro == micros_ - 1) {  // of a bucket, or a micro-batch that stands for no other
    place = counted(run);
  } else {
    const auto [known, first] = counted_.try_emplace({task.op, task.chunk, task.parts.first, task.payload}, -1);
    if (first) known->second = counted(run);
    else again(counts_.counts[known->second]);
    place = known->second;
  }
  counts_.of_task.push_back(place);
  if (task.micro >= 0) add(task, counts_.counts[place].alive);
}

// Launches of many shapes are counted anew instead of being compared.
int DryCount::counted(const std::function<Alive()>& run) {
  const TaskCount before = so_far();
  LaunchCounts all = std::exchange(device_.launch_counts, {});
  const Alive alive = run();
  counts_.counts.push_back(difference(so_far(), before));
  counts_.counts.back().alive = alive;
  for (const auto& [shape, count] : device_.launch_counts) all[shape].calls += count.calls;
  counts_.counts.back().launches = std::exchange(device_.launch_counts, std::move(all));
  return int(counts_.counts.size()) - 1;
}

TaskCount DryCount::so_far() {
  TaskCount count{device_.work()};
  grid_.visit([&](Communicator& c) { count.traffic.push_back(c.traffic()); });
  return count;
}

// What has come since `before`, launches left out.
TaskCount DryCount::difference(TaskCount now, const TaskCount& before) {
  for (std::size_t i = 0; i < before.work.size(); ++i) {
    now.work[i].calls -= before.work[i].calls;
    now.work[i].flops -= before.work[i].flops;
    now.work[i].bytes -= before.work[i].bytes;
  }
  for (std::size_t c = 0; c < before.traffic.size(); ++c) now.traffic[c] = now.traffic[c].since(before.traffic[c]);
  return now;
}

void DryCount::again(const TaskCount& count) {
  device_.add(count.work);
  std::size_t c = 0;
  grid_.visit([&](Communicator& communicator) { communicator.add(count.traffic[c++]); });
}

// A task is counted beside what the other slots hold.
void DryCount::add(const Task& task, const Alive& alive) {
  Index others = 0;
  for (const auto& chunk : alive_)
    for (const Index slot : chunk) others += slot;
  Index& mine = alive_[task.chunk][task.slot];
  most_alive_ = std::max(most_alive_, others - mine + alive.most);
  mine = task.last_use ? 0 : alive.behind;
}

}  // namespace gyr
