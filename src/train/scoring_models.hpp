// SPDX-License-Identifier: BSD-3-Clause
// The frozen models of a run (deck section models), each on its own ranks and grid. They score the samples of a step, and the
// trained model reads these scores as values of its micro-batches (Objective::scoring_models).
#pragma once

#include <mpi.h>

#include <memory>

#include "src/config/placed_models.hpp"
#include "src/engine/memory/capacity.hpp"
#include "src/engine/step/engine.hpp"
#include "src/train/feed.hpp"

namespace gyr {

// Configuration of the engine of a further model, frozen or trained.
EngineConfig scoring_config(const PlacedModel&);

// The models that this rank holds, with the memory that each needs.
struct PlannedModel {
  PlacedModel placed;
  std::optional<Capacity> capacity;  // empty: this rank is not in the mesh
};
// `rank`: of the run. `beat`: see plan_rank.
std::vector<PlannedModel> planned_models(const RunConfig&, int rank, int ranks, const std::function<void()>& beat = {});
// Memory of a rank that holds all these models. They use the same working memory one after the other.
Capacity with_working(Capacity, Index bytes);  // working memory of at least this many bytes
Capacity together(const Capacity& trained, const std::vector<PlannedModel>&);

class ScoringModels {
 public:
  // Loads the weights. `working`: at least together(...).working() bytes, which the engines use in turn. `grid`: that of the
  // trained model, over all ranks of the run. Collective over `world`, the ranks of the run in order.
  ScoringModels(std::vector<PlannedModel>, Grid&, MPI_Comm world, const Arena& working, ProgressRecord&);
  ~ScoringModels();

  // Scores the samples of a step on all models, and returns the micro-batches of this rank with these scores. `micro_batches`: those of
  // the trained model. Collective over the run; without models, it returns them unchanged. Exit::numeric if a score is not finite.
  MicroBatches scored(const SampleSource&, const Span& samples, MicroBatches micro_batches, Device&);
  // Log-probabilities of the labels of these samples under a model, or values of their rows, samples x seq_length, on every rank of the run.
  // Likewise collective.
  std::vector<double> rows_of(const std::string& model, const SampleSource&, const Span& samples, Device&);

 private:
  struct Held;
  std::vector<double> text_scores(Held&, const SampleSource&, const Span& samples, Index per_sample);
  // Scores of each sample in turn, the same on every rank of the run.
  std::vector<double> scores_of(const PlacedModel&, Held*, const SampleSource&, const Span& samples, Index per_sample, Device&);

  Grid& grid_;
  std::vector<PlacedModel> models_;
  std::vector<std::unique_ptr<Held>> held_;  // null for models without weights on this rank
};

}  // namespace gyr
