// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/executor.hpp"

#include <algorithm>

#include "src/engine/memory/on_tape.hpp"

namespace gyr {

namespace {

// Calls transfer(tensor) for each tensor of a bundle, with the purpose of the transfer set on the device for traffic
// reports.
template <class Transfer>
void for_each(Device& device, const Task& task, const Bundle& bundle, const Transfer& transfer) {
  bundle.each([&](const BundleTensor& kind, const AnyTensor2& x) {
    const Device::Purpose purpose(device, task.payload == Payload::gradients ? kind.gradient_purpose : kind.purpose);
    transfer(x);
  });
}

// True if the model has a loss term that is weighted by the number of sequences of a step (MoE auxiliary loss, z-loss).
bool counts_sequences(const ModelConfig& m) { return m.moe.aux_loss > 0 || m.moe.z_loss > 0; }

// Names the chunk, micro-batch and parts of a task in a trace.
Subject subject_of(const Task& task) { return {task.chunk, task.micro, int(task.parts.first), int(task.parts.last), task.bucket}; }

}  // namespace

Executor::Executor(Device& device, Grid& grid, Stage& stage, GradientReduction& reduction, WeightGathering& gathering, Timers& timers, bool repeats)
    : device_(device), grid_(grid), stage_(stage), reduction_(reduction), gathering_(gathering), timers_(timers), buckets_(stage.buckets()),
      repeats_(repeats), graphs_(grid) {}

void Executor::run(const Program& program, const std::vector<MicroBatch>& batches, const RunOrder& order) {
  Run run{program, batches, order, {}};
  for (const int slots : program.slots) run.flows.emplace_back(slots);
  if (order.scores) order.scores->resize(batches.size());
  if (repeats_) graphs_.read(program);
  DryCount count(device_, grid_, program);
  for (const Task& task : program.tasks) {
    if (task.op == Op::step) break;
    reduction_.poll();
    gathering_.poll();
    if (!device_.dry_run()) execute(run, task);
    else count.take(task, [&] { return execute(run, task); });
  }
  live_ = std::max(live_, count.most_alive());
  task_counts_ = std::move(count.counts());
  auto t = timers_.scope("pipeline wait");
  const Recorder::Span span(grid_.recorder(), "last transfers");
  grid_.begin_task("last transfers");
  for (std::size_t chunk = 0; chunk < run.flows.size(); ++chunk)
    for (std::size_t i = 0; i < run.flows[chunk].size(); ++i)
      clear(run.flows[chunk][i], run.with_backwards() ? stage_.training_slot(int(chunk), int(i)) : stage_.slot(int(chunk), int(i)));
}

void Executor::run_after_step(const Program& program) {
  const auto step = std::find_if(program.tasks.begin(), program.tasks.end(), [](const Task& t) { return t.op == Op::step; });
  for (auto task = step; task != program.tasks.end(); ++task) execute_on_bucket(*task);
}

bool Executor::execute_on_bucket(const Task& task) {
  if (task.bucket < 0) return false;
  const Recorder::Span span(grid_.recorder(), name_of(task.op).data(), {.bucket = task.bucket});
  switch (task.op) {
    case Op::clear: reduction_.clear(device_, task.bucket, task.buffer); return true;
    case Op::reduce: reduction_.start(device_, task.bucket, task.buffer); return true;
    case Op::gather: gathering_.start(task.bucket, task.buffer); return true;
    default: return false;
  }
}

Alive Executor::execute(Run& run, const Task& task) {
  if (execute_on_bucket(task)) return {};
  std::optional<Tape>& tape = slot(run, task).tape;
  {
    const OnTape on_tape(device_.scratch, tape);
    execute_in_slot(run, task);
  }
  return tape ? Alive{tape->last_peak(), tape->live()} : Alive{};
}

void Executor::execute_in_slot(Run& run, const Task& task) {
  const Recorder::Span span(grid_.recorder(), name_of(task.op).data(), subject_of(task));
  Flow& flow = run.flows[task.chunk][task.slot];
  switch (task.op) {
    case Op::receive: receive(run, task, flow); break;
    case Op::send: send(run, task, flow); break;
    case Op::forward: forward(run, task, flow); break;
    default: backward(run, task, flow); break;
  }
  flow.over = task.last_use;
}

Slot& Executor::slot(const Run& run, const Task& task) {
  return run.with_backwards() ? stage_.training_slot(task.chunk, task.slot) : stage_.slot(task.chunk, task.slot);
}

// Lets the device wait for events in the order in which they started.
void Executor::wait(std::vector<Event>& events) {
  for (Event& event : events) event.device_wait(device_);
  events.clear();
}

// Waits for the sends that read the slot, then frees its memory if the micro-batch is done.
void Executor::clear(Flow& flow, Slot& slot) {
  wait(flow.sends);
  if (flow.over) slot.clear();
  flow.over = false;
}

// Returns the CUDA graphs of a micro-batch. Returns null while a hook, a trace or kernel timing needs individual kernel
// launches.
SlotGraphs* Executor::graphs_of(Run& run, const Task& task) {
  const SequenceLayout& s = slot(run, task).text.sequences;
  const bool looks = hook_ || grid_.recorder() || GraphReplay::watched(device_);
  if (!repeats_ || !run.with_backwards() || looks) return nullptr;
  return &graphs_.of(task, {counts_sequences(stage_.config()) ? Index(run.batches.size()) : 0, s.documents.packed() || s.full_documents.packed(),
                            slot(run, task).source.sequences.rows()});
}

Bundle Executor::begin(Run& run, const Task& task, Flow& flow) {
  clear(flow, slot(run, task));
  const MicroBatch& batch = run.batches[task.micro];
  Slot& slot = this->slot(run, task);
  const Index source_length = slot.tape ? slot.tape->enter(batch.source.length) : batch.source.length;
  const Bundle input = stage_.chunk(task.chunk).begin(device_, slot, stage_.sequences(batch), batch, stage_.source_of(batch, source_length));
  if (run.with_backwards()) stage_.chunk(task.chunk).draw(device_, slot, {run.order.step, batch.first_sample});
  flow.graphs = graphs_of(run, task);
  if (flow.graphs) flow.graphs->begin(slot);
  return input;
}

void Executor::receive(Run& run, const Task& task, Flow& flow) {
  const auto into = [&](std::vector<Event>& events, const Bundle& bundle) {
    for_each(device_, task, bundle,
             [&](const AnyTensor2& x) { events.push_back(grid_.group(Axis::pipeline).start_receive(device_, x.flat(), task.peer, task.tag)); });
  };
  auto t = timers_.scope("pipeline wait");
  if (task.payload == Payload::gradients) {
    wait(flow.sends);  // this is the gradient of the output that was sent, and may reuse the memory of that output
    Slot& slot = this->slot(run, task);
    const auto ask = [&] { return stage_.chunk(task.chunk).begin_backward(slot); };
    return into(flow.gradient, flow.graphs ? flow.graphs->gradient_of_output(slot, ask) : ask());
  }
  into(flow.input, begin(run, task, flow));
}

void Executor::send(Run& run, const Task& task, Flow& flow) {
  const Slot& slot = this->slot(run, task);
  const Bundle& bundle = task.payload == Payload::activations ? slot.stream : slot.gradient;
  for_each(device_, task, bundle,
           [&](const AnyTensor2& x) { flow.sends.push_back(grid_.group(Axis::pipeline).start_send(device_, x.flat(), task.peer, task.tag)); });
}

// Common part of forward and backward: waits for the inputs and the weights, then runs body(chunk, pass, slot).
void Executor::compute(Run& run, const Task& task, Flow& flow, const char* what, std::vector<Event>& awaited, const Compute& body) {
  grid_.begin_task(what, task.micro);
  {
    auto t = timers_.scope("pipeline wait");
    wait(awaited);
  }
  wait_for_weights(task);
  auto t = timers_.scope(what);
  if (hook_) hook_->micro_batch(task.micro);
  if (flow.graphs) flow.graphs->compute(device_, slot(run, task), [&] { enqueue(run, task, body); });
  else enqueue(run, task, body);
}

void Executor::enqueue(Run& run, const Task& task, const Compute& body) {
  Slot& slot = this->slot(run, task);
  Pass pass = stage_.pass(device_, slot);
  std::optional<Pass> source = stage_.source_pass(device_, slot);
  const Index sequences = Index(run.batches.size()) * slot.text.sequences.batch * grid_.layout().size(Axis::data);
  if (run.with_backwards()) {
    pass.sequence_weight = 1.0 / double(sequences);
    pass.drawn = Drawn{run.order.seed, slot.drawn_at};
    // a different seed, so that encoder dropout differs from decoder dropout
    if (source) source->drawn = pass.drawn, source->drawn->seed = ~run.order.seed;
  }
  if (source) pass.source = &*source;
  body(stage_.chunk(task.chunk), pass, slot);
}

void Executor::wait_for_weights(const Task& task) {
  if (buckets_.shard == Shard::none) return;
  auto t = timers_.scope("gather weights");
  const Index first = buckets_.of(task.chunk).first;
  for (Index part = first + task.parts.first; part < first + task.parts.last; ++part)
    for (const int bucket : buckets_.buckets[part]) gathering_.wait(bucket);
}

void Executor::forward(Run& run, const Task& task, Flow& flow) {
  if (stage_.chunk(task.chunk).first() && task.parts.first == 0) begin(run, task, flow);
  compute(run, task, flow, "forward", flow.input, [&](Chunk& chunk, Pass& pass, Slot& slot) {
    chunk.forward(pass, slot, task.parts, run.order.scales, run.order.loss, run.order.scores ? &(*run.order.scores)[task.micro] : nullptr);
  });
}

void Executor::backward(Run& run, const Task& task, Flow& flow) {
  compute(run, task, flow, "backward", flow.gradient, [&](Chunk& chunk, Pass& pass, Slot& slot) {
    if (task.op == Op::backward_weights) chunk.backward_weights(pass, slot, task.parts);
    else chunk.backward(pass, slot, task.parts, task.op == Op::backward ? MatrixGradients::now : MatrixGradients::later);
  });
}

}  // namespace gyr
