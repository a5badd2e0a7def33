// SPDX-License-Identifier: BSD-3-Clause
// Walks a program: computes, sends, receives, and begins reductions and gathers, task after task.
#pragma once

#include <functional>
#include <utility>

#include "src/engine/step/dry_count.hpp"
#include "src/engine/step/reduction.hpp"
#include "src/engine/step/slot_graphs.hpp"
#include "src/engine/step/weight_gathering.hpp"
#include "src/report/timers.hpp"

namespace gyr {

// What is said of each micro-batch.
using Scores = std::vector<ObjectiveScores>;

// What a run over micro-batches gives besides gradients.
struct RunOrder {
  Tensor1<double> loss;  // (1) on the device: the last stage adds the losses of the labelled rows of this rank's data coordinate; with gradients
                         // behind it those of each depth, where tokens further ahead are told
  Tensor1<const double> scales = {};  // on the device, of each of these where its gradients are wanted; none: forwards alone
  Scores* scores = nullptr;           // filled by the last stage, without gradients
  std::uint64_t seed = 0;             // of what is drawn where gradients are wanted ...
  std::int64_t step = 0;              // ... in this step
};

class Executor {
 public:
  // `repeats`: micro-batches that are trained on may be told as graphs.
  Executor(Device&, Grid&, Stage&, GradientReduction&, WeightGathering&, Timers&, bool repeats);

  void set_hook(Hook* hook) { hook_ = hook; }
  // Runs the program up to its step. Sums and gathers that have begun are polled between tasks until they are waited for.
  void run(const Program&, const std::vector<MicroBatch>&, const RunOrder&);
  // What is behind its step.
  void run_after_step(const Program&);
  // Of a dry run: the most bytes of slots and scratch that a program with backwards has needed at once.
  Index live() const { return live_; }
  // Of a dry run: what the tasks of the last program have taken.
  TaskCounts take_task_counts() { return std::exchange(task_counts_, {}); }

 private:
  // What is under way around a slot.
  struct Flow {
    std::vector<Event> input, gradient;  // transfers into its memory, which are waited for before it is read
    std::vector<Event> sends;            // transfers that still read it
    bool over = false;                   // nothing else does
    SlotGraphs* graphs = nullptr;        // of the micro-batch; null: told kernel by kernel
  };
  // A program on its way.
  struct Run {
    const Program& program;
    const std::vector<MicroBatch>& batches;
    RunOrder order;
    std::vector<std::vector<Flow>> flows;  // by chunk and slot
    bool with_backwards() const { return order.scales.extent(0) > 0; }
  };

  Alive execute(Run&, const Task&);
  bool execute_on_bucket(const Task&);  // false: it is on a slot
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
