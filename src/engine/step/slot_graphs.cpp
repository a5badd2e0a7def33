// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/slot_graphs.hpp"

namespace gyr {

void SlotGraphs::begin(Slot& slot) {
  next_ = 0;
  ++begun_;
  if (by_graphs()) slot.tape->skip();
}

void SlotGraphs::compute(Device& dev, Slot& slot, const std::function<void()>& enqueue) {
  if (next_ == computations_.size()) computations_.push_back({GraphReplay(exchanges_), {}, {}});
  Computation& computation = computations_[next_++];
  computation.work.run(dev, [&] {
    enqueue();
    computation.stream = slot.stream, computation.gradient = slot.gradient;
  });
  slot.stream = computation.stream, slot.gradient = computation.gradient;
}

Bundle SlotGraphs::gradient_of_output(Slot& slot, const std::function<Bundle()>& ask) {
  if (!by_graphs()) gradient_of_output_ = ask();
  slot.gradient = gradient_of_output_;
  return slot.gradient;
}

void StepGraphs::read(const Program& program) {
  ways_.clear();
  for (const Task& t : program.tasks)
    if (is_computation(t)) ways_[{t.chunk, t.micro}].push_back({t.op, t.parts.first, t.parts.last});
}

SlotGraphs& StepGraphs::of(const Task& task, const EnqueuedWork& enqueued) {
  return graphs_.try_emplace({task.chunk, task.slot, enqueued, ways_.at({task.chunk, task.micro})}, exchanges_).first->second;
}

}  // namespace gyr
