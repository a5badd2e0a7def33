// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/executor.hpp"

#include <algorithm>

namespace gyr {

namespace {

// While a task with backwards runs, scratch follows the tape of its slot.
class OnTape {
 public:
  OnTape(Arena& scratch, std::optional<Tape>& tape) : scratch_(scratch), tape_(tape) {
    if (tape_) scratch_.follow(&*tape_);
  }
  ~OnTape() {
    scratch_.follow(nullptr);
    if (tape_) tape_->end_task();
  }
  OnTape(const OnTape&) = delete;
  OnTape& operator=(const OnTape&) = delete;

 private:
  Arena& scratch_;
  std::optional<Tape>& tape_;
};

}  // namespace

template <class T>
Executor<T>::Executor(Device& device, Grid& grid, Stage<T>& stage, Timers& timers) : device_(device), grid_(grid), stage_(stage), timers_(timers) {}

template <class T>
void Executor<T>::run(const Program& program, const std::vector<MicroBatch>& batches, const RunOrder& order, const Reduce& reduce) {
  Run run{program, batches, order, reduce, {}};
  for (const int slots : program.slots) run.flows.emplace_back(slots);
  if (order.scores) order.scores->resize(batches.size());
  DryCount count(device_, grid_, program);
  for (const Task& task : program.tasks) {
    std::erase_if(reductions_, [](Event& reduction) { return reduction.done(); });  // lets what is under way advance
    if (!device_.dry_run()) execute(run, task);
    else count.take(task, [&] { return execute(run, task); });
  }
  live_ = std::max(live_, count.most_alive());
  auto t = timers_.scope("pipeline wait");
  grid_.tell("last transfers");
  for (std::size_t chunk = 0; chunk < run.flows.size(); ++chunk)
    for (std::size_t i = 0; i < run.flows[chunk].size(); ++i)
      clear(run.flows[chunk][i], run.with_backwards() ? stage_.training_slot(int(chunk), int(i)) : stage_.slot(int(chunk), int(i)));
}

template <class T>
void Executor<T>::wait_for_reductions() {
  for (Event& reduction : reductions_) reduction.device_wait(device_);
  reductions_.clear();
}

template <class T>
Alive Executor<T>::execute(Run& run, const Task& task) {
  if (task.op == Op::reduce) reductions_.push_back(run.reduce(task.bucket));
  if (task.op == Op::reduce || task.op == Op::step) return {};
  std::optional<Tape>& tape = slot(run, task).tape;
  {
    const OnTape on_tape(device_.scratch, tape);
    execute_in_slot(run, task);
  }
  return tape ? Alive{tape->last_peak(), tape->live()} : Alive{};
}

template <class T>
void Executor<T>::execute_in_slot(Run& run, const Task& task) {
  Flow& flow = run.flows[task.chunk][task.slot];
  switch (task.op) {
    case Op::receive: receive(run, task, flow); break;
    case Op::send: send(run, task, flow); break;
    case Op::forward: forward(run, task, flow); break;
    default: backward(run, task, flow); break;
  }
  flow.over = task.last_use;
}

template <class T>
Slot<T>& Executor<T>::slot(const Run& run, const Task& task) {
  return run.with_backwards() ? stage_.training_slot(task.chunk, task.slot) : stage_.slot(task.chunk, task.slot);
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
  if (flow.over) slot.clear();
  flow.over = false;
}

template <class T>
Bundle<T> Executor<T>::begin(Run& run, const Task& task, Flow& flow) {
  clear(flow, slot(run, task));
  return stage_.chunk(task.chunk).begin(device_, slot(run, task), run.batches[task.micro]);
}

template <class T>
void Executor<T>::receive(Run& run, const Task& task, Flow& flow) {
  const auto into = [&](std::vector<Event>& events, const Bundle<T>& bundle) {
    bundle.each([&](const Tensor2<T>& x) { events.push_back(grid_.group(Axis::pipeline).start_receive(device_, flat(x), task.peer, task.tag)); });
  };
  auto t = timers_.scope("pipeline wait");
  if (task.payload == Payload::gradients) {
    wait(flow.sends);  // the gradient is of what has been sent, and may take its memory
    return into(flow.gradient, stage_.chunk(task.chunk).begin_backward(slot(run, task)));
  }
  into(flow.input, begin(run, task, flow));
}

template <class T>
void Executor<T>::send(Run& run, const Task& task, Flow& flow) {
  const Slot<T>& slot = this->slot(run, task);
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
  Slot<T>& slot = this->slot(run, task);
  Pass<T> pass = stage_.pass(device_, slot);
  chunk.forward(pass, slot, run.order.scale, run.order.loss, run.order.scores ? &(*run.order.scores)[task.micro] : nullptr);
}

template <class T>
void Executor<T>::backward(Run& run, const Task& task, Flow& flow) {
  grid_.tell("backward", task.micro);
  {
    auto t = timers_.scope("pipeline wait");
    wait(flow.gradient);
  }
  auto t = timers_.scope("backward");
  if (hook_) hook_->micro_batch(task.micro);
  Slot<T>& slot = this->slot(run, task);
  Pass<T> pass = stage_.pass(device_, slot);
  Chunk<T>& chunk = stage_.chunk(task.chunk);
  if (task.op == Op::backward) chunk.backward(pass, slot, task.parts);
  if (task.op == Op::backward_input) chunk.backward_input(pass, slot, task.parts);
  if (task.op == Op::backward_weights) chunk.backward_weights(pass, slot, task.parts);
}

template class Executor<double>;
template class Executor<float>;
template class Executor<bf16>;

}  // namespace gyr
