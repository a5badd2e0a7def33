// SPDX-License-Identifier: BSD-3-Clause
// Everything one rank needs for a training step: stage, optimizer, memory, and the programs it runs. A dry-run engine
// runs the same step without arithmetic or communication. This counts bytes, FLOPs and traffic before anything is
// allocated.
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
  // type of weights, activations and GEMM inputs (mixed precision); sums, gradients and master weights have its
  // accumulator's type
  DType precision = DType::f32;
  OptimizerConfig optimizer;
  Index micro_batch_size = 1;  // number of sequences per micro-batch
  Index seq_length = 1024;     // number of tokens per sequence
  Index source_length = 0;     // encoder input tokens per sequence; 0: no encoder
  // Smaller capacities, ascending, for micro-batches with shorter encoder inputs; memory is planned for each of them.
  std::vector<Index> smaller_sources = {};
  int micros = 1;        // maximum number of micro-batches per step and data-parallel rank (gradient accumulation)
  bool training = true;  // false: forward only, without gradients and optimizer
  Schedule schedule = one_f_one_b;
  GemmLibrary gemm_library = GemmLibrary::automatic;
  Fp8Recipe fp8 = Fp8Recipe::none;  // GEMMs of linear layers
  std::optional<bool> planned_gpu;  // dry run only: true or false to plan the memory of a GPU or of a host; none: as this build computes
  RecomputeConfig recompute;
  OffloadConfig offload;
  std::optional<DType> reduce_dtype;  // type of gradients in data-parallel reductions; none: the type they are accumulated in
  Factors factors = Factors::stored;  // storage of weight matrices (as stored, or int8) if nothing is trained
  std::uint64_t seed = 0;             // seed of random draws during a step: dropout
  bool must_be_finite = true;  // false: a step with non-finite loss or gradient reports this in StepResult and changes no weight; true: it throws

  std::vector<Index> source_rooms() const {
    std::vector<Index> rooms = smaller_sources;
    if (source_length > 0) rooms.push_back(source_length);
    return rooms;
  }
};

// Timer names of an engine; the first timer covers the full step, and the next ones its parts.
// Scoring::first: further models score the samples of a step before it. rollouts: the samples are generated before that.
// critic: and a critic is trained with them.
enum class Scoring { none, first, rollouts, critic };
std::vector<std::string> engine_timer_names(Scoring = Scoring::none);
std::size_t engine_step_parts(const std::vector<std::string>& timer_names);  // number of these parts

struct StepResult {
  double loss = 0;             // main loss, mean over labelled tokens of the global batch
  double gradient_norm = 0;    // global gradient norm before clipping
  Index tokens = 0;            // number of labelled tokens of the global batch (of pairs with DPO)
  bool finite = true;          // true: loss and gradient norm are finite on every rank
  bool applied = true;         // false: the update was skipped and the weights are unchanged
  bool refused = false;        // true: it was skipped because StepOrder::refuses
  double stop_request = 0;     // largest stop request of any rank; 0: none
  double expert_load = 0;      // maximum expert load of any layer: tokens of its busiest expert / mean over its experts; 0: the model has no experts
  double dropped_choices = 0;  // token-expert assignments that were dropped for lack of capacity, in all layers
  // Further losses (Objective::further_losses), each averaged over its labelled rows; none if no row has a label.
  std::vector<std::optional<double>> ahead_losses = {};
};

// Parameters of a step besides its data.
struct StepOrder {
  std::int64_t number = 1;  // step number, counts from 1
  double lr = 0;
  double stop_request = 0;  // request of this rank, 0: none; the maximum over ranks is reduced together with the loss
  double loss_limit = std::numeric_limits<double>::infinity();  // a step with a higher loss changes no weight
  std::optional<double> weight_decay = {};                      // instead of the optimizer's
  std::function<bool(const StepResult&)> refuses = {};          // true: a finite step changes no weight; the same on all ranks
};

// Returns micro-batch number i of this rank's data coordinate in the current step.
using MicroBatches = std::function<MicroBatch(int)>;
inline std::vector<MicroBatch> first_of(const MicroBatches& source, int micros) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < micros; ++i) batches.push_back(source(i));
  return batches;
}
// Index, within the step, of the first sample of micro-batch i. Replicas take micro-batches in turn, so that the
// samples of a step do not depend on the grid.
Index first_sample(Index micro_batch_size, Index i, const Grid&);

class Engine final : public ModelState {
 public:
  // `capacity`: result of `measured` after a dry run of one step of the same configuration and of a forward-only pass.
  // Training micro-batches must then have the shape of the dry run. Null: this engine is itself a dry run and needs a
  // dry-run grid. `working`: at least capacity->working() bytes for activations and scratch. Engines may share this
  // memory, because an engine keeps nothing in it between calls. Null: the engine allocates its own.
  Engine(const EngineConfig&, Grid&, const Capacity* capacity, Timers&, const Arena* working = nullptr);

  // Draws the weights by (seed, name, element) and resets the optimizer.
  void initialise(std::uint64_t seed);

  // One optimizer step over `micros` micro-batches (gradient accumulation). If loss or gradient is not finite on some
  // rank, or the loss is above the limit, no rank changes its weights. With must_be_finite, non-finite values throw
  // Exit::numeric with step and weight.
  StepResult train(const MicroBatches&, int micros, const StepOrder&);
  StepResult train(const MicroBatches& source, int micros, std::int64_t step, double lr) { return train(source, micros, {step, lr}); }
  // Loss and gradients as in train, without the update. The gradients that this rank keeps are fully reduced
  // afterwards.
  StepResult gradients(const MicroBatches&, int micros, const StepOrder&);
  StepResult gradients(const MicroBatches& source, int micros, std::int64_t step) { return gradients(source, micros, StepOrder{step}); }
  // Call after a step that was not finite, and before the next one: throws Exit::numeric naming the weight where a
  // non-finite value was first seen.
  [[noreturn]] void not_finite(std::int64_t step, const StepResult&);
  // Forward only: sum of losses, and number of labelled tokens, over the global batch. `scores`, if given, receives
  // what scores() returns.
  std::pair<double, Index> evaluate(const MicroBatches&, int micros, Scores* scores = nullptr);
  // Forward only: scores of this data coordinate's micro-batches on the last stage; without rows on the other stages.
  Scores scores(const MicroBatches&, int micros);

  Stage& stage() { return stage_; }
  Optimizer& optimizer() { return *optimizer_; }
  const EngineConfig& config() const { return config_; }
  Capacity measured() const;  // peak bytes used so far, by category
  // Program of a step, its buckets, and in a dry run the task counts of the last program.
  Program training_program(int micros) const { return program(config_.schedule, micros); }
  const BucketPlan& buckets() const { return buckets_; }
  TaskCounts take_task_counts() { return executor_.take_task_counts(); }
  // One line for the log: the parts of a step that run as CUDA graphs. Empty if the backend has no graphs or the
  // environment disables them (GYR_CUDA_GRAPHS).
  std::string graphs() const;

  const ModelConfig& model() const override { return config_.model; }
  DType precision() const override { return config_.precision; }
  Index seq_length() const override { return config_.seq_length; }
  Index micro_batch_size() const override { return config_.micro_batch_size; }
  const OptimizerConfig& optimizer_config() const override { return config_.optimizer; }
  Grid& grid() override { return grid_; }
  Device& device() override { return device_; }
  ParameterList parameters() const override;
  Piece tensor(const Parameter&, Content) const override;
  void reset_optimizer() override {
    if (optimizer_) optimizer_->reset(device_);
  }
  void set_hook(Hook*) override;
  void on_gradients(std::function<void(const std::vector<AnyTensor>&)> f) override { on_gradients_ = std::move(f); }

 private:
  Program program(Schedule, int micros) const;
  void run(const Program&, const std::vector<MicroBatch>&, const RunOrder&);
  void run_forward(const std::vector<MicroBatch>&, Scores*);
  // Labelled tokens of the global batch, followed by the label counts of `further` further losses.
  std::vector<Index> labelled(const std::vector<MicroBatch>&, Index further = 0);
  Index further_losses() const { return config_.training ? config_.model.objective->further_losses() : 0; }
  void upload_loss_scales(const std::vector<Index>& labels);
  void begin_gradients();
  void finish_gradients();

  EngineConfig config_;
  Grid& grid_;
  Timers& timers_;
  Arena working_;  // memory for activation slots and scratch
  Device device_;
  Arena weights_, gradients_, optimizer_memory_;
  // (2 + further losses) in weight memory: sums of the losses and of the squared gradients of a step, read by the host
  // together at its end
  Tensor1<double> sums_;
  Tensor1<double> scales_;  // (1 + further losses) scales of the losses in this step, in weight memory where kernels read them
  Stage stage_;
  std::optional<Optimizer> optimizer_;
  BucketPlan buckets_;
  GradientReduction reduction_;
  mutable WeightGathering gathering_;  // all-gathers of weights; every reader of weights waits for them
  bool has_graphs_ = DeviceGraph::possible();
  std::string without_graphs_;  // reason why micro-batches run without CUDA graphs; empty: they use graphs
  Executor executor_;
  GraphReplay squares_;           // sum of squared gradients, replayed as a CUDA graph
  ExpertChoices expert_choices_;  // number of tokens that chose each expert in the last step
  std::function<void(const std::vector<AnyTensor>&)> on_gradients_;
  Hook* hook_ = nullptr;
};

}  // namespace gyr
