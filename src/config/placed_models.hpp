// SPDX-License-Identifier: BSD-3-Clause
// The models of a run besides the trained one (further_models.hpp), with their layouts.
#pragma once

#include <vector>

#include "modules/objectives/objective.hpp"
#include "src/config/run_config.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr {

struct PlacedModel {
  ScoringModel use;  // how the objective uses its scores
  Mesh mesh;
  Layout layout;  // on the ranks of the mesh
  RunConfig run;  // the run with shape, precision and grid of this model in the place of those of the trained one
};

// Tokens of the windows that a model reads.
Index window_of(const FurtherModel&, const RunConfig&);
// Exit::config unless a model can read the token ids and windows of the trained model.
void check_token_ids(const FurtherModel&, const RunConfig&);

// Exit::config unless the objective of the run reads every model of the deck, and each has the vocabulary of the trained
// model, except reward models (train/reward_texts.hpp). Checked for the deck of a run, not for a stored one. A run that is only planned needs no
// weights of frozen models.
enum class ModelWeights { needed, not_needed };
void check_further_models(const RunConfig&, ModelWeights);
// Layouts of the models on `ranks` ranks, in the order of the deck. Exit::config if one does not fit them.
std::vector<PlacedModel> placed_models(const RunConfig&, int ranks);
// Number of scores of a sample, in the field that the objective reads.
Index scores_per_sample(const PlacedModel&);

}  // namespace gyr
