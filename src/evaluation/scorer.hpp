// SPDX-License-Identifier: BSD-3-Clause
// Asks a model for passages: the grid's data coordinates share the batches, tensor and pipeline ranks share the model.
#pragma once

#include <string>

#include "src/engine/stage.hpp"
#include "src/evaluation/batches.hpp"
#include "src/evaluation/class_counts.hpp"
#include "src/evaluation/logits.hpp"
#include "src/evaluation/passage.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// Gives a stage its weights.
using Fill = std::function<void(Stage&)>;

// The score of every passage, the same on every rank. The batches, and so the figures but for the order of sums inside the model, are
// those of any other grid. `logits`, where given, is written; `classes`, where the model tells some, are counted. Collective.
std::vector<PassageScore> score_passages(const ModelConfig&, DType, Grid&, const Fill&, const Passages&, const BatchLimits&,
                                         LogitsFile* logits = nullptr, Factors = Factors::stored, ClassCounts* classes = nullptr);

}  // namespace gyr
