// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/executor.hpp"

#include <array>
#include <map>
#include <tuple>

namespace gyr {

namespace {

// Work and traffic so far, or of a task.
struct Count {
  std::vector<Work> work;
  std::vector<std::array<Traffic, operations>> traffic;  // of every communicator
};

Count counted_so_far(const Device& device, Grid& grid) {
  Count count{device.work(), {}};
  grid.visit([&](Communicator& c) { count.traffic.push_back(c.traffic()); });
  return count;
}

// What has come since `before`.
Count operator-(Count now, const Count& before) {
  for (std::size_t i = 0; i < before.work.size(); ++i) {
    now.work[i].calls -= before.work[i].calls;
    now.work[i].flops -= before.work[i].flops;
    now.work[i].bytes -= before.work[i].bytes;
  }
  for (std::size_t c = 0; c < before.traffic.size(); ++c)
    for (int op = 0; op < operations; ++op) {
      now.traffic[c][op].calls -= before.traffic[c][op].calls;
      now.traffic[c][op].bytes -= before.traffic[c][op].bytes;
    }
  return now;
}

void count_again(const Count& count, Device& device, Grid& grid) {
  device.add(count.work);
  std::size_t c = 0;
  grid.visit([&](Communicator& communicator) { communicator.add(count.traffic[c++]); });
}

}  // namespace

template <class T>
Executor<T>::Executor(Device& device, Grid& grid, Stage<T>& stage, Timers& timers) : device_(device), grid_(grid), stage_(stage), timers_(timers) {}

template <class T>
void Executor<T>::run(const Program& program, const std::vector<MicroBatch>& batches, const RunOrder& order, const Reduce& reduce) {
  Run run{program, batches, order, reduce, {}};
  for (const int slots : program.slots) run.flows.emplace_back(slots);
  if (order.scores) order.scores->resize(batches.size());
  std::map<std::tuple<Op, int, Payload>, Count> counted;  // of micro-batch 1, by task
  for (const Task& task : program.tasks) {
    std::erase_if(reductions_, [](Event& reduction) { return reduction.done(); });  // lets what is under way advance
    if (!repeats(run, task)) {
      execute(run, task);
      continue;
    }
    const auto [known, first] = counted.try_emplace({task.op, task.chunk, task.payload});
    if (first) {
      const Count before = counted_so_far(device_, grid_);
      execute(run, task);
      known->second = counted_so_far(device_, grid_) - before;
    } else {
      count_again(known->second, device_, grid_);
    }
  }
  auto t = timers_.scope("pipeline wait");
  grid_.tell("last transfers");
  for (std::size_t chunk = 0; chunk < run.flows.size(); ++chunk)
    for (std::size_t i = 0; i < run.flows[chunk].size(); ++i) clear(run.flows[chunk][i], stage_.slot(int(chunk), int(i)));
}

template <class T>
void Executor<T>::wait_for_reductions() {
  for (Event& reduction : reductions_) reduction.device_wait(device_);
  reductions_.clear();
}

template <class T>
void Executor<T>::execute(Run& run, const Task& task) {
  if (task.op == Op::step) return;
  if (task.op == Op::reduce) return reductions_.push_back(run.reduce(task.bucket));
  Flow& flow = run.flows[task.chunk][task.slot];
  switch (task.op) {
    case Op::receive: receive(run, task, flow); break;
    case Op::send: send(task, flow); break;
    case Op::forward: forward(run, task, flow); break;
    default: backward(task, flow); break;
  }
  flow.over = task.last_use;
}

// In the order in which they began.
template <class T>
void Executor<T>::wait(std::vector<Event>& events) {
  for (Event& event : events) event.device_wait(device_);
  events.clear();
}

// What a send reads stays until it has ended.
template <class T>
void Executor<T>::clear(Flow& flow, Slot<T>& slot) {
  wait(flow.sends);
  if (flow.over) slot.frame.clear();
  flow.over = false;
}

template <class T>
Bundle<T> Executor<T>::begin(Run& run, const Task& task, Flow& flow) {
  clear(flow, stage_.slot(task.chunk, task.slot));
  return stage_.chunk(task.chunk).begin(device_, stage_.slot(task.chunk, task.slot), run.batches[task.micro]);
}

template <class T>
void Executor<T>::receive(Run& run, const Task& task, Flow& flow) {
  const auto into = [&](std::vector<Event>& events, const Bundle<T>& bundle) {
    bundle.each([&](const Tensor2<T>& x) { events.push_back(grid_.group(Axis::pipeline).start_receive(device_, flat(x), task.peer, task.tag)); });
  };
  if (task.payload == Payload::gradients) return into(flow.gradient, stage_.chunk(task.chunk).begin_backward(stage_.slot(task.chunk, task.slot)));
  auto t = timers_.scope("pipeline wait");
  into(flow.input, begin(run, task, flow));
}

template <class T>
void Executor<T>::send(const Task& task, Flow& flow) {
  const Slot<T>& slot = stage_.slot(task.chunk, task.slot);
  const Bundle<T>& bundle = task.payload == Payload::activations ? slot.stream : slot.gradient;
  bundle.each(
      [&](const Tensor2<T>& x) { flow.sends.push_back(grid_.group(Axis::pipeline).template start_send<T>(device_, flat(x), task.peer, task.tag)); });
}

template <class T>
void Executor<T>::forward(Run& run, const Task& task, Flow& flow) {
  grid_.tell("forward", task.micro);
  Chunk<T>& chunk = stage_.chunk(task.chunk);
  if (chunk.first()) begin(run, task, flow);
  {
    auto t = timers_.scope("pipeline wait");
    wait(flow.input);
  }
  auto t = timers_.scope("forward");
  if (hook_) hook_->micro_batch(task.micro);
  Slot<T>& slot = stage_.slot(task.chunk, task.slot);
  Pass<T> pass = stage_.pass(device_, slot);
  chunk.forward(pass, slot, run.order.scale, run.order.loss, run.order.scores ? &(*run.order.scores)[task.micro] : nullptr);
}

template <class T>
void Executor<T>::backward(const Task& task, Flow& flow) {
  grid_.tell("backward", task.micro);
  {
    auto t = timers_.scope("pipeline wait");
    wait(flow.gradient);
  }
  auto t = timers_.scope("backward");
  if (hook_) hook_->micro_batch(task.micro);
  Slot<T>& slot = stage_.slot(task.chunk, task.slot);
  Pass<T> pass = stage_.pass(device_, slot);
  if (task.op != Op::backward_weights) stage_.chunk(task.chunk).backward_input(pass, slot, task.parts);
  if (task.op != Op::backward_input) stage_.chunk(task.chunk).backward_weights(pass, slot, task.parts);
}

// In a dry run all micro-batches but the first and the last, which ends with reductions, take the same: the second is counted, and the count
// stands for the others.
template <class T>
bool Executor<T>::repeats(const Run& run, const Task& task) const {
  return device_.dry_run() && task.micro > 0 && task.micro < run.program.shape.micros - 1 && task.op != Op::reduce && task.op != Op::step;
}

template class Executor<double>;
template class Executor<float>;
template class Executor<bf16>;

}  // namespace gyr
