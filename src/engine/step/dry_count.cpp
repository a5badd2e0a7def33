// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/dry_count.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

DryCount::DryCount(Device& device, Grid& grid, const Program& program) : device_(device), grid_(grid), micros_(program.shape.micros) {
  for (const int slots : program.slots) alive_.emplace_back(slots, 0);
}

void DryCount::take(const Task& task, const std::function<Alive()>& run) {
  int place = -1;
  if (task.micro <= 0 || task.micro == micros_ - 1) {  // bucket tasks, and the first and last micro-batch, are always executed
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

// Launch counts are collected separately for each task, because comparing many shapes would be slower.
int DryCount::counted(const std::function<Alive()>& run) {
  const TaskCount before = so_far();
  LaunchCounts all = std::exchange(device_.launch_counts, {});
  device_.overlapped_transfers.take();
  const Alive alive = run();
  counts_.counts.push_back(difference(so_far(), before));
  counts_.counts.back().alive = alive;
  counts_.counts.back().hidden = hidden();
  for (const auto& [shape, count] : device_.launch_counts) all[shape].calls += count.calls;
  counts_.counts.back().launches = std::exchange(device_.launch_counts, std::move(all));
  return int(counts_.counts.size()) - 1;
}

int DryCount::place_of(const void* communicator) {
  int place = -1, next = 0;
  grid_.visit([&](Communicator& c) {
    if (&c == communicator) place = next;
    ++next;
  });
  ensure(place >= 0, "a transfer uses a communicator that is not of the grid");
  return place;
}

// A transfer that starts in one task and is awaited in another is not counted here, because it is a task of its own.
std::vector<std::pair<int, OverlappedTransfer>> DryCount::hidden() {
  std::vector<std::pair<int, OverlappedTransfer>> all;
  const auto alike = [](const OverlappedTransfer& a, const OverlappedTransfer& b) {
    return a.communicator == b.communicator && a.operation == b.operation && a.bytes == b.bytes && a.overlapped == b.overlapped;
  };
  for (OverlappedTransfer& transfer : device_.overlapped_transfers.take()) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& known) { return alike(known.second, transfer); });
    if (same != all.end()) same->second.times += transfer.times;
    else all.emplace_back(place_of(transfer.communicator), std::move(transfer));
  }
  return all;
}

TaskCount DryCount::so_far() {
  TaskCount count{device_.work()};
  grid_.visit([&](Communicator& c) { count.traffic.push_back(c.traffic()); });
  return count;
}

// Work and traffic since `before`.
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

// Adds the live bytes of a task to those of the other slots.
void DryCount::add(const Task& task, const Alive& alive) {
  Index remaining = 0;
  for (const auto& chunk : alive_)
    for (const Index slot : chunk) remaining += slot;
  Index& mine = alive_[task.chunk][task.slot];
  most_alive_ = std::max(most_alive_, remaining - mine + alive.most);
  mine = task.last_use ? 0 : alive.after;
}

}  // namespace gyr
