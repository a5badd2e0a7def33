// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_count.hpp"

#include <algorithm>

namespace gyr {

DryCount::DryCount(Device& device, Grid& grid, const Program& program) : device_(device), grid_(grid), micros_(program.shape.micros) {
  for (const int slots : program.slots) alive_.emplace_back(slots, 0);
}

void DryCount::take(const Task& task, const std::function<Alive()>& run) {
  if (task.micro < 0) {  // of a bucket
    run();
    return;
  }
  if (task.micro == 0 || task.micro == micros_ - 1) return add(task, run());
  const auto [known, first] = counted_.try_emplace({task.op, task.chunk, task.parts.first, task.payload});
  if (first) {
    const Count before = so_far();
    const Alive alive = run();
    known->second = difference(so_far(), before);
    known->second.alive = alive;
  } else {
    again(known->second);
  }
  add(task, known->second.alive);
}

DryCount::Count DryCount::so_far() {
  Count count{device_.work(), {}};
  grid_.visit([&](Communicator& c) { count.traffic.push_back(c.traffic()); });
  return count;
}

// What has come since `before`.
DryCount::Count DryCount::difference(Count now, const Count& before) {
  for (std::size_t i = 0; i < before.work.size(); ++i) {
    now.work[i].calls -= before.work[i].calls;
    now.work[i].flops -= before.work[i].flops;
    now.work[i].bytes -= before.work[i].bytes;
  }
  for (std::size_t c = 0; c < before.traffic.size(); ++c) now.traffic[c] = now.traffic[c].since(before.traffic[c]);
  return now;
}

void DryCount::again(const Count& count) {
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
