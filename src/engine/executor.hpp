// SPDX-License-Identifier: BSD-3-Clause
// Walks a program: computes, sends, receives and begins reductions, task after task.
#pragma once

#include <functional>

#include "src/engine/dry_count.hpp"
#include "src/engine/stage.hpp"
#include "src/report/timers.hpp"

namespace gyr {

// What a run over micro-batches gives besides gradients.
struct RunResult {
  double loss = 0;                              // sum over the labelled tokens of this rank's data coordinate, on the last stage
  std::vector<std::vector<TokenScore>> scores;  // of each row of each micro-batch on the last stage, where they were asked for
};

struct RunOrder {
  double scale = 0;     // of the loss whose gradients are wanted; 0: forwards alone
  bool scores = false;  // of every row; without gradients
};

template <class T>
class Executor {
 public:
  Executor(Device&, Grid&, Stage<T>&, Timers&);

  void set_hook(Hook<T>* hook) { hook_ = hook; }
  // Runs the program up to its step. `reduce` begins the sum of a bucket; what it has begun is polled between tasks until it is waited for.
  using Reduce = std::function<Event(int bucket)>;
  RunResult run(const Program&, const std::vector<MicroBatch>&, const RunOrder&, const Reduce& reduce = {});
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
    RunResult result;
    bool with_backwards() const { return order.scale != 0; }
  };

  Alive execute(Run&, const Task&);
  void execute_in_slot(Run&, const Task&);
  void forward(Run&, const Task&, Flow&);
  void backward(Run&, const Task&, Flow&);
  void send(Run&, const Task&, Flow&);
  void receive(Run&, const Task&, Flow&);
  Bundle<T> begin(Run&, const Task&, Flow&);
  void clear(Flow&, Slot<T>&);
  void wait(std::vector<Event>&);

  Slot<T>& slot(const Run&, const Task&);

  Device& device_;
  Grid& grid_;
  Stage<T>& stage_;
  Timers& timers_;
  Hook<T>* hook_ = nullptr;
  std::vector<Event> reductions_;
  Index live_ = 0;
};

}  // namespace gyr
