// SPDX-License-Identifier: BSD-3-Clause
// Everything one rank needs for a training step: stage, optimizer, memory, and the execution of the schedule.
// A ghost engine runs the same step without arithmetic or messages and so knows bytes, flops and traffic before they are taken.
#pragma once

#include <functional>

#include "src/optimizer.hpp"
#include "src/report/timers.hpp"
#include "src/schedule.hpp"
#include "src/stage.hpp"

namespace gyr {

struct EngineConfig {
  ModelConfig model;
  OptimizerConfig optimizer;
  Index micro_batch = 1;  // sequences in a micro-batch
  Index length = 1024;    // tokens in a sequence
  int micros = 1;         // micro-batches per step and data rank, at most
  bool training = true;   // false: forwards only, without gradients and optimizer
  Index bucket_bytes = Index(32) << 20;  // gradients reduced together over the data axis
};

// Bytes a rank takes, by category; activations are `slots` times `slot`.
struct Capacity {
  Index weights = 0, gradients = 0, optimizer = 0, slot = 0, slots = 0, scratch = 0, communication = 0;
  Index bytes(Memory) const;
  Index total() const;
};

// Stopwatches of an engine, in order; the first is the whole.
std::vector<std::string> engine_timer_names();

struct StepResult {
  double loss = 0;           // mean over labelled tokens of the global batch
  double gradient_norm = 0;  // before clipping
  Index tokens = 0;          // labelled tokens of the global batch
};

// Micro-batch number i of this rank's data coordinate in the present step.
using MicroBatches = std::function<MicroBatch(int)>;

template <class T>
class Engine {
 public:
  // `capacity` is what a ghost's `measured` said after one step of the same configuration; null makes a ghost, on a ghost grid.
  Engine(const EngineConfig&, Grid&, const Capacity* capacity, Timers&);

  // Draws the weights by (seed, name, element) and resets the optimizer.
  void initialise(std::uint64_t seed);

  // One optimizer step over `micros` micro-batches; step counts from 1. Exit::numeric naming step and layer where loss or gradient
  // is not finite, before any weight has changed.
  StepResult train(const MicroBatches&, int micros, std::int64_t step, double rate);
  // Loss and gradients only, as train has them before the update: every rank's gradients are whole and reduced.
  StepResult gradients(const MicroBatches&, int micros, std::int64_t step);
  // Sum of losses and number of labelled tokens over the global batch; no gradients.
  std::pair<double, Index> evaluate(const MicroBatches&, int micros);
  // The scores of every row of this data coordinate's micro-batches, [micro][row], on the last stage; empty on the others. No gradients.
  std::vector<std::vector<TokenScore>> scores(const MicroBatches&, int micros);

  Stage<T>& stage() { return stage_; }
  Optimizer<T>& optimizer() { return *optimizer_; }
  Device& device() { return device_; }
  Grid& grid() { return grid_; }
  const EngineConfig& config() const { return config_; }
  Capacity measured() const;  // high-water marks so far

 private:
  struct Bucket {
    Span range;      // of the flat gradients
    int first_part;  // started when this part, the last one done, is complete
  };
  void make_buckets();
  // Runs a task list; returns the sum of losses of this rank's data coordinate (on the last stage)
  // and adds the scores of the rows of each micro-batch to `each`, if given.
  double run(const std::vector<Task>&, const std::vector<MicroBatch>&, double scale, std::vector<std::vector<TokenScore>>* each = nullptr);
  std::vector<MicroBatch> collect(const MicroBatches&, int micros) const;
  Index labelled(const std::vector<MicroBatch>&);
  void start_buckets(int part);
  void finish_gradients();
  double from_last_stage(double value);  // summed over the data axis, as the last stage knows it, told to every stage
  [[noreturn]] void not_finite(std::int64_t step, double loss, double norm);

  EngineConfig config_;
  Grid& grid_;
  Timers& timers_;
  Device device_;
  Arena weights_, gradients_, optimizer_memory_, communication_;
  Stage<T> stage_;
  std::optional<Optimizer<T>> optimizer_;
  std::vector<Bucket> buckets_;
  std::vector<Request> reductions_;
  std::vector<std::vector<Request>> sends_;  // by slot: transfers that still read its memory
};

}  // namespace gyr
