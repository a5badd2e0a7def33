// SPDX-License-Identifier: BSD-3-Clause
// Walks a program: computes, sends, receives and begins reductions, task after task.
#pragma once

#include <functional>

#include "src/engine/dry_count.hpp"
#include "src/engine/stage.hpp"
#include "src/report/timers.hpp"

namespace gyr {

// The scores of each row of each micro-batch, [micro][row].
using Scores = std::vector<std::vector<RowScore>>;

// What a run over micro-batches gives besides gradients.
struct RunOrder {
  Tensor1<double> loss;      // (1) on the device: the last stage adds the losses of the labelled rows of this rank's data coordinate
  double scale = 0;          // of the loss whose gradients are wanted; 0: forwards alone
  Scores* scores = nullptr;  // filled by the last stage, without gradients
};

class Executor {
 public:
  Executor(Device&, Grid&, Stage&, Timers&);

  void set_hook(Hook* hook) { hook_ = hook; }
  // Runs the program up to its step. `reduce` begins the sum of a bucket; what it has begun is polled between tasks until it is waited for.
  using Reduce = std::function<Event(int bucket)>;
  void run(const Program&, const std::vector<MicroBatch>&, const RunOrder&, const Reduce& reduce = {});
  // Waits for all sums that have begun.
  void wait_for_reductions();
  // Of a dry run: the most bytes of slots and scratch that a program with backwards has needed at once.
  Index live() const { return live_; }

 private:
  // What is under way around a slot.
  struct Flow {
    std::vector<Event> input, gradient;  // transfers into its memory, which are waited for before it is read
    std::vector<Event> sends;            // transfers that still read it
    bool over = false;                   // nothing else does
  };
  // A program on its way.
  struct Run {
    const Program& program;
    const std::vector<MicroBatch>& batches;
    RunOrder order;
    const Reduce& reduce;
    std::vector<std::vector<Flow>> flows;  // by chunk and slot
    bool with_backwards() const { return order.scale != 0; }
  };

  Alive execute(Run&, const Task&);
  void execute_in_slot(Run&, const Task&);
  using Compute = std::function<void(Chunk&, Pass&, Slot&)>;
  void compute(Run&, const Task&, const char* what, std::vector<Event>& awaited, const Compute&);
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
  Timers& timers_;
  Hook* hook_ = nullptr;
  std::vector<Event> reductions_;
  Index live_ = 0;
};

}  // namespace gyr
