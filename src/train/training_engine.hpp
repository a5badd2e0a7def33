// SPDX-License-Identifier: BSD-3-Clause
// The engine as a run uses it: its state, its steps with the dumps and faults of the deck, and what is looked at and
// saved between them. All but what says otherwise is collective over the grid.
#pragma once

#include "src/checkpoint/checkpoint.hpp"
#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/step/engine.hpp"
#include "src/train/validation.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

class TrainingEngine {
 public:
  virtual ~TrainingEngine() = default;

  // Weights drawn, or those of a model that exists; the optimizer has seen nothing. Or all of a checkpoint.
  virtual void initialise() = 0;
  virtual void load_weights(const std::filesystem::path& model) = 0;
  virtual CheckpointHeader load(const std::filesystem::path& checkpoint) = 0;
  // Exit::config naming the first tensor of another shape. Not collective.
  virtual void check_shapes(const std::filesystem::path& checkpoint) const = 0;

  // To be called before every step: faults strike.
  virtual void before(Index step) = 0;
  // The step `order` on these samples. `state`: what it goes on from; `say` is told by the first rank of a dump.
  virtual StepResult step(const StepOrder& order, const Dataset&, const Span& samples, const CheckpointHeader& state, const Note& say) = 0;
  // In words, what was not finite in the step just taken.
  virtual std::string bad_number(Index step, const StepResult&) = 0;
  // What so many global batches give, from sample 0 on. Exit::data where no token of them has a label. Nothing where `stop`, asked by all ranks after
  // every batch but the last and the same on all, says so.
  virtual std::optional<Validation> validate(const Dataset&, Index batches, Index batch, const std::function<bool()>& stop) = 0;
  // Transfers, tasks and, if asked for, kernels from now on; null: no more.
  virtual void record(Recorder*, bool kernels) = 0;
  virtual void check_replicas(Index step) = 0;  // replicas.hpp

  virtual std::unique_ptr<StateSaver> saver() = 0;
  virtual const Capacity& capacity() const = 0;  // of this rank, as planned
  virtual double gemm_rate() const = 0;          // flop/s of this rank
  virtual std::string graphs() const = 0;        // Engine::graphs
};

// Its memory is planned before: that may take long, and a signal ends it with Exit::again.
std::unique_ptr<TrainingEngine> training_engine(const RunConfig&, const EngineConfig&, const Identity&, Grid&, Timers&, ProgressRecord&);

}  // namespace gyr
