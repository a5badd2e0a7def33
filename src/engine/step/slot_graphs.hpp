// SPDX-License-Identifier: BSD-3-Clause
// CUDA graphs for micro-batches that use the same slot one after the other. They run the same computations on the same
// parts in the same order, with the same memory. Only its contents and the borders of documents differ. So each
// computation is replayed as a graph (graph_replay.hpp), and the tensors that a chunk sends and receives keep their
// addresses.
#pragma once

#include <deque>
#include <map>

#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

class SlotGraphs {
 public:
  explicit SlotGraphs(std::vector<Communicator*> exchanges) : exchanges_(std::move(exchanges)) {}

  // Starts the next micro-batch, which is already in its slot. From the third one on, graphs replay everything, and
  // nothing is recorded in the slot's frames.
  void begin(Slot&);
  // Runs the next computation of the micro-batch.
  void compute(Device&, Slot&, const std::function<void()>& enqueue);
  // Tensors to receive the gradient of the output into: the result of `ask`, which is called only for the first two
  // micro-batches.
  Bundle gradient_of_output(Slot&, const std::function<Bundle()>& ask);

 private:
  struct Computation {
    GraphReplay work;
    Bundle stream, gradient;  // stream and gradient of the slot after the computation
  };
  bool by_graphs() const { return begun_ > 2; }

  std::vector<Communicator*> exchanges_;
  Index begun_ = 0;
  std::size_t next_ = 0;
  std::deque<Computation> computations_;
  Bundle gradient_of_output_;
};

// CUDA graphs of a rank. The key is the slot, the program's computations for a micro-batch in it, and kernel arguments
// besides addresses.
class StepGraphs {
 public:
  explicit StepGraphs(Grid& grid) : exchanges_(layer_communicators(grid)) {}

  // Kernel arguments of a micro-batch besides memory addresses.
  struct EnqueuedWork {
    Index micros = 0;        // number of micro-batches of the step, if a loss term is weighted by it; otherwise 0
    bool documents = false;  // true if the micro-batch has packed documents, which attention keeps separate
    Index source = 0;        // tokens of an encoder input, with padding
    auto operator<=>(const EnqueuedWork&) const = default;
  };

  // Reads the computations of each micro-batch; call it before a program is run.
  void read(const Program&);
  SlotGraphs& of(const Task&, const EnqueuedWork&);

 private:
  struct Computed {
    Op op;
    Index first, last;
    auto operator<=>(const Computed&) const = default;
  };
  using Way = std::vector<Computed>;

  std::vector<Communicator*> exchanges_;
  std::map<std::pair<int, int>, Way> ways_;  // computations of each micro-batch in the program, by chunk and micro-batch
  std::map<std::tuple<int, int, EnqueuedWork, Way>, SlotGraphs> graphs_;
};

}  // namespace gyr
