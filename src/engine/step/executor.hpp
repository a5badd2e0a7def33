// SPDX-License-Identifier: BSD-3-Clause
// Executes a program task by task: computes, sends, receives, and starts gradient reductions and weight all-gathers.
#pragma once

#include <functional>
#include <utility>

#include "src/engine/step/dry_count.hpp"
#include "src/engine/step/reduction.hpp"
#include "src/engine/step/slot_graphs.hpp"
#include "src/engine/step/weight_gathering.hpp"
#include "src/report/timers.hpp"

namespace gyr {

// Scores of each micro-batch of a run, in order.
using Scores = std::vector<ObjectiveScores>;

// Outputs and parameters of a run over micro-batches, besides its gradients.
struct RunOrder {
  // (1 + further losses) on the device: the last stage adds the losses of the labelled rows of this rank's data
  // coordinate. Further losses, such as those of multi-token prediction, are computed only in training.
  Tensor1<double> loss;
  Tensor1<const double> scales = {};  // scale of each of these losses, on the device, if gradients are wanted; empty: forward only
  // Scores of each micro-batch, written by the last stage in forward-only runs; null: not wanted.
  Scores* scores = nullptr;
  std::uint64_t seed = 0;  // seed of dropout, used in training runs
  std::int64_t step = 0;   // step number, which dropout also depends on
};

class Executor {
 public:
  // `repeats`: training micro-batches may be captured as CUDA graphs and replayed.
  Executor(Device&, Grid&, Stage&, GradientReduction&, WeightGathering&, Timers&, bool repeats);

  void set_hook(Hook* hook) { hook_ = hook; }
  // Runs the program up to its optimizer step. Reductions and all-gathers in flight are polled between tasks until they
  // are awaited.
  void run(const Program&, const std::vector<MicroBatch>&, const RunOrder&);
  // Runs the tasks after the optimizer step.
  void run_after_step(const Program&);
  // Dry run: maximum bytes of slots and scratch that a training program needs at once.
  Index live() const { return live_; }
  // Dry run: counts of the tasks of the last program.
  TaskCounts take_task_counts() { return std::exchange(task_counts_, {}); }

 private:
  // Transfers in flight for one slot.
  struct Flow {
    std::vector<Event> input, gradient;  // receives into the slot's memory, awaited before it is read
    std::vector<Event> sends;            // events of sends that still read the slot's memory
    bool over = false;                   // true: no later task of this micro-batch uses the slot
    SlotGraphs* graphs = nullptr;        // CUDA graphs of the micro-batch; null: kernels are launched one by one
  };
  // A program in execution.
  struct Run {
    const Program& program;
    const std::vector<MicroBatch>& batches;
    RunOrder order;
    std::vector<std::vector<Flow>> flows;  // transfers in flight, by chunk and slot
    bool with_backwards() const { return order.scales.extent(0) > 0; }
  };

  Alive execute(Run&, const Task&);
  bool execute_on_bucket(const Task&);  // runs a task that clears, reduces or gathers a bucket; false if the task belongs to a slot
  void execute_in_slot(Run&, const Task&);
  using Compute = std::function<void(Chunk&, Pass&, Slot&)>;
  void compute(Run&, const Task&, Flow&, const char* what, std::vector<Event>& awaited, const Compute&);
  void enqueue(Run&, const Task&, const Compute&);
  SlotGraphs* graphs_of(Run&, const Task&);
  void wait_for_weights(const Task&);
  void forward(Run&, const Task&, Flow&);
  void backward(Run&, const Task&, Flow&);
  void send(Run&, const Task&, Flow&);
  void receive(Run&, const Task&, Flow&);
  Bundle begin(Run&, const Task&, Flow&);
  void clear(Flow&, Slot&);
  void wait(std::vector<Event>&);

  Slot& slot(const Run&, const Task&);

  Device& device_;
  Grid& grid_;
  Stage& stage_;
  GradientReduction& reduction_;
  WeightGathering& gathering_;
  Timers& timers_;
  BucketPlan buckets_;
  Hook* hook_ = nullptr;
  bool repeats_;
  StepGraphs graphs_;
  Index live_ = 0;
  TaskCounts task_counts_;
};

}  // namespace gyr
