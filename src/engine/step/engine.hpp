// SPDX-License-Identifier: BSD-3-Clause
// Everything one rank needs for a training step: stage, optimizer, memory, and the programs it runs.
// A dry-run engine runs the same step without arithmetic or messages and so knows bytes, flops and traffic before they are taken.
#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "src/engine/model/model_state.hpp"
#include "src/engine/step/executor.hpp"
#include "src/engine/step/expert_balance.hpp"
#include "src/engine/step/optimizer.hpp"
#include "src/engine/step/reduction.hpp"

namespace gyr {

struct EngineConfig {
  ModelConfig model;
  DType precision = DType::f32;  // of weights, activations and products; sums, gradients and masters are those of its accumulator
  OptimizerConfig optimizer;
  Index micro_batch_size = 1;  // sequences in a micro-batch
  Index seq_length = 1024;     // tokens in a sequence
  Index source_length = 0;     // of what an encoder reads for each of them
  int micros = 1;              // micro-batches per step and data rank, at most
  bool training = true;        // false: forwards only, without gradients and optimizer
  Schedule schedule = one_f_one_b;
  GemmLibrary products = GemmLibrary::automatic;
  RecomputeConfig recompute;
  OffloadConfig swap;
  std::optional<DType> reduce_dtype;  // in which gradients travel over the data axis; none: in which they are added up
  Factors factors = Factors::stored;  // how they are held, where nothing is trained
  std::uint64_t seed = 0;             // of what a step draws: dropout
  bool must_be_finite = true;         // otherwise a step whose numbers are not finite says so and changes nothing
};

// Stopwatches of an engine, in order; the first is the whole.
std::vector<std::string> engine_timer_names();

struct StepResult {
  double loss = 0;             // mean over labelled tokens of the global batch, of what follows each
  double gradient_norm = 0;    // before clipping
  Index tokens = 0;            // labelled tokens of the global batch
  bool finite = true;          // loss and norm, on every rank
  bool applied = true;         // the weights have been updated
  double stop_request = 0;     // the greatest stop request of all ranks
  double expert_load = 0;      // tokens of the fullest expert of any layer, 1 where all have as many; 0: there are no experts
  double dropped_choices = 0;  // of tokens, that experts had no room for, in all layers
  // Further ones (Objective::further_losses), of each the mean over rows that have a label there; nothing where none has.
  std::vector<std::optional<double>> ahead_losses = {};
};

// What a step is told besides its data.
struct StepOrder {
  std::int64_t number = 1;  // counts from 1
  double lr = 0;
  double stop_request = 0;  // of this rank, 0: none; the greatest of all ranks counts and travels with the step's sums
  double loss_limit = std::numeric_limits<double>::infinity();  // a higher loss changes nothing
};

// Micro-batch number i of this rank's data coordinate in the present step.
using MicroBatches = std::function<MicroBatch(int)>;
inline std::vector<MicroBatch> first_of(const MicroBatches& source, int micros) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < micros; ++i) batches.push_back(source(i));
  return batches;
}
// The sample, counted within the step, that it begins with: replicas take turns, so that a step's samples do not depend on the grid.
Index first_sample(Index micro_batch_size, Index i, const Grid&);

class Engine final : public ModelState {
 public:
  // `capacity`: what `measured` returned after one step of a dry run of the same configuration, and forwards alone. Null makes a dry run, on
  // a dry-run grid. Micro-batches that are trained on then have the shape of those of the dry run.
  // `working`: at least capacity->working() bytes for activations and scratch, which other engines take too: nothing of an engine is there
  // between its calls. Null: memory of its own.
  Engine(const EngineConfig&, Grid&, const Capacity* capacity, Timers&, const Arena* working = nullptr);

  // Draws the weights by (seed, name, element) and resets the optimizer.
  void initialise(std::uint64_t seed);

  // One optimizer step over `micros` micro-batches. Where loss or gradient is not finite on some rank, or the loss is above the limit, no
  // weight changes on any; where they must be finite, Exit::numeric names step and layer.
  StepResult train(const MicroBatches&, int micros, const StepOrder&);
  StepResult train(const MicroBatches& source, int micros, std::int64_t step, double lr) { return train(source, micros, {step, lr}); }
  // Loss and gradients only, as train has them before the update: what every rank keeps of the gradients is whole and reduced.
  StepResult gradients(const MicroBatches&, int micros, const StepOrder&);
  StepResult gradients(const MicroBatches& source, int micros, std::int64_t step) { return gradients(source, micros, StepOrder{step}); }
  // After a step that was not finite, and before the next: throws Exit::numeric with the name of the weight where it was first seen.
  [[noreturn]] void not_finite(std::int64_t step, const StepResult&);
  // Sum of losses and number of labelled tokens over the global batch; no gradients. `scores`, if given, are as below.
  std::pair<double, Index> evaluate(const MicroBatches&, int micros, Scores* scores = nullptr);
  // What is said of this data coordinate's micro-batches, on the last stage; nothing of them on the others. No gradients.
  Scores scores(const MicroBatches&, int micros);

  Stage& stage() { return stage_; }
  Optimizer& optimizer() { return *optimizer_; }
  const EngineConfig& config() const { return config_; }
  Capacity measured() const;  // high-water marks so far
  // The program of a step, its buckets, and in a dry run what the tasks of the last program have taken.
  Program training_program(int micros) const { return program(config_.schedule, micros); }
  const BucketPlan& buckets() const { return buckets_; }
  TaskCounts take_task_counts() { return executor_.take_task_counts(); }
  // What of a step is told as graphs, in one line; empty where the backend has none, or the environment does not let it.
  std::string graphs() const;

  const ModelConfig& model() const override { return config_.model; }
  DType precision() const override { return config_.precision; }
  Index seq_length() const override { return config_.seq_length; }
  Index micro_batch_size() const override { return config_.micro_batch_size; }
  Trained trained() const override { return config_.optimizer.trained(); }
  Grid& grid() override { return grid_; }
  Device& device() override { return device_; }
  ParameterList parameters() const override;
  Piece tensor(const Parameter&, Content) const override;
  void reset_optimizer() override { optimizer_->reset(device_); }
  void set_hook(Hook*) override;
  void on_gradients(std::function<void(const std::vector<AnyTensor>&)> f) override { on_gradients_ = std::move(f); }

 private:
  Program program(Schedule, int micros) const;
  void run(const Program&, const std::vector<MicroBatch>&, const RunOrder&);
  void run_forward(const std::vector<MicroBatch>&, Scores*);
  // Labelled tokens of the global batch, and of each of so many further losses behind them.
  std::vector<Index> labelled(const std::vector<MicroBatch>&, Index further = 0);
  Index further_losses() const { return config_.training ? config_.model.objective->further_losses() : 0; }
  void upload_loss_scales(const std::vector<Index>& labels);
  void begin_gradients();
  void finish_gradients();

  EngineConfig config_;
  Grid& grid_;
  Timers& timers_;
  Arena working_;  // slots and scratch
  Device device_;
  Arena weights_, gradients_, optimizer_memory_;
  Tensor1<double> sums_;    // (2 + depths) beside the weights: of the losses and of the squared gradients of a step, read together at its end
  Tensor1<double> scales_;  // (1 + depths) of the losses in the present step, where kernels read them
  Stage stage_;
  std::optional<Optimizer> optimizer_;
  BucketPlan buckets_;
  GradientReduction reduction_;
  mutable WeightGathering gathering_;  // is waited for by who reads weights
  bool has_graphs_ = DeviceGraph::possible();
  std::string without_graphs_;  // why micro-batches are
  Executor executor_;
  GraphReplay squares_;           // of the gradients
  ExpertChoices expert_choices_;  // of the last step
  std::function<void(const std::vector<AnyTensor>&)> on_gradients_;
  Hook* hook_ = nullptr;
};

}  // namespace gyr
