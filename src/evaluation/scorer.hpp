// SPDX-License-Identifier: BSD-3-Clause
// Asks a model for passages: the grid's data coordinates share the batches, tensor and pipeline ranks share the model.
#pragma once

#include <string>

#include "src/engine/model/stage.hpp"
#include "src/evaluation/batches.hpp"
#include "src/evaluation/class_counts.hpp"
#include "src/evaluation/figures.hpp"
#include "src/evaluation/logits.hpp"
#include "src/evaluation/passage.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// Gives a stage its weights.
using Fill = std::function<void(Stage&)>;

// What is counted besides, where it is given: of a model that tells classes these, and its objective's figures.
struct Counted {
  ClassCounts* classes = nullptr;
  Figures* figures = nullptr;
};

// The score of every passage, the same on every rank. The batches, and so the figures but for the order of sums inside the model, are
// those of any other grid. `logits`, where given, is written. Collective.
std::vector<PassageScore> score_passages(const ModelConfig&, DType, Grid&, const Fill&, const Passages&, const BatchLimits&,
                                         LogitsFile* logits = nullptr, Factors = Factors::stored, const Counted& = {});

}  // namespace gyr
