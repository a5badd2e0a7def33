// SPDX-License-Identifier: BSD-3-Clause
// Interface between a training run and the engine: state, steps with the dumps and faults of the deck, and checks and
// saves between steps. Collective over the grid unless stated otherwise.
#pragma once

#include "src/checkpoint/checkpoint.hpp"
#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/gemm_choice/gemm_rate.hpp"
#include "src/engine/generate/service.hpp"
#include "src/engine/step/engine.hpp"
#include "src/train/run_ranks.hpp"
#include "src/train/step_source.hpp"
#include "src/train/validation.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

class TrainingEngine {
 public:
  virtual ~TrainingEngine() = default;

  // Initial state: random weights, or those of an existing model, with a reset optimizer; or a complete checkpoint.
  virtual void initialise() = 0;
  virtual void load_weights(const std::filesystem::path& model) = 0;
  virtual CheckpointHeader load(const std::filesystem::path& checkpoint) = 0;
  // Throws the error of load_weights() for a model that is missing or has other weights, without reading a tensor. Not
  // collective.
  virtual void check_weights(const std::filesystem::path& model) const = 0;
  // Throws the error of load() for a checkpoint of another model or without the moments of a trained weight, without
  // reading a tensor. Not collective.
  virtual void check_checkpoint(const std::filesystem::path& checkpoint) const = 0;

  // Call before every step: injects the faults of the deck (fault.*).
  virtual void before(Index step) = 0;
  // Runs the step `order` on these samples. `state`: header of the state before the step, for dumps. `print_line`: logs
  // a dump, on the first rank.
  virtual StepResult step(const StepOrder& order, const StepSamples&, const CheckpointHeader& state, const Note& print_line) = 0;
  // Policy training: begins answers by the present weights before step `step`. Ranks that only generate (rl.generate.separate)
  // write them while this function and later steps run; otherwise they are complete when it returns.
  virtual void begin_answers(const std::vector<Request>&, const Sampling&, Index step) = 0;
  virtual std::vector<GeneratedText> finish_answers() = 0;  // the answers begun last, on every rank
  // Log-probabilities of the labels of samples, samples x seq_length, under the present weights; and log-probabilities or values
  // by a further model (models.NAME), frozen or not.
  virtual std::vector<double> log_probs(const StepSamples&) = 0;
  virtual std::vector<double> rows_of(const std::string& model, const StepSamples&) = 0;
  // Runs a step of the critic (models.critic).
  virtual StepResult step_of_critic(const StepOrder&, const StepSamples&) = 0;
  // Message that names what was not finite in the step just taken.
  virtual std::string bad_number(Index step, const StepResult&) = 0;
  // Validates on this number of global batches, from sample 0 on. Exit::data if no token has a label. Returns none if
  // `stop` returns true. All ranks call `stop` after every batch but the last, and its result must be the same on all.
  virtual std::optional<Validation> validate(const Dataset&, Index batches, Index batch, const std::function<bool()>& stop) = 0;
  // Records transfers, tasks and, if requested, kernels in a trace from now on; null: stops recording.
  virtual void record(Recorder*, bool kernels) = 0;
  virtual void check_replicas(Index step) = 0;  // compares data-parallel replicas (src/engine/model/replicas.hpp)

  virtual std::unique_ptr<StateSaver> saver() = 0;
  virtual const Capacity& capacity() const = 0;  // planned bytes of this rank with all models, by category
  virtual GemmRate gemm_rate() = 0;              // measured GEMM throughput, FLOP/s: mean over all ranks
  virtual std::string graphs() const = 0;        // log line: parts of a step that run as CUDA graphs (Engine::graphs)
};

// Makes the engine after planning its memory, with the generator of policy training, and loads the further models of the run.
// `ranks.training`: the ranks of the grid in their order. Planning may take long, and a stop signal ends it with Exit::again.
std::unique_ptr<TrainingEngine> training_engine(const RunConfig&, const EngineConfig&, const RunData&, Grid&, const RunRanks&, Timers&,
                                                ProgressRecord&);

}  // namespace gyr
