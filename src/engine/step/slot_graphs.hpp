// SPDX-License-Identifier: BSD-3-Clause
// What micro-batches that come to the same slot one after the other have in common: the same computations, of the same parts in the same order, with
// the same memory. Only what lies there differs, and where documents end too. So each computation is told again as a graph (graph_replay.hpp), and
// what a chunk hands on and is handed lies where it lay.
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

  // The next micro-batch, which has been brought into its slot. From the third on nothing is kept of its computations in the slot's frames.
  void begin(Slot&);
  // Its next computation.
  void compute(Device&, Slot&, const std::function<void()>& enqueue);
  // Where the gradient of its output must be received: what `ask` says, which is asked where the slot has frames.
  Bundle gradient_of_output(Slot&, const std::function<Bundle()>& ask);

 private:
  struct Computation {
    GraphReplay work;
    Bundle stream, gradient;  // of the slot, behind it
  };
  bool by_graphs() const { return begun_ > 2; }

  std::vector<Communicator*> exchanges_;
  Index begun_ = 0;
  std::size_t next_ = 0;
  std::deque<Computation> computations_;
  Bundle gradient_of_output_;
};

// Those of a rank, by slot, by the computations that a program has for a micro-batch there, and by what these are told of it.
class StepGraphs {
 public:
  explicit StepGraphs(Grid& grid) : exchanges_(layer_communicators(grid)) {}

  // What kernels are told of a micro-batch besides where it lies.
  struct EnqueuedWork {
    Index micros = 0;        // of its step, where a term of the loss is weighed by their number
    bool documents = false;  // whether it holds some that do not see each other
    auto operator<=>(const EnqueuedWork&) const = default;
  };

  // Before a program is run.
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
  std::map<std::pair<int, int>, Way> ways_;  // of the program, by chunk and micro-batch
  std::map<std::tuple<int, int, EnqueuedWork, Way>, SlotGraphs> graphs_;
};

}  // namespace gyr
