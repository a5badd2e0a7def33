// SPDX-License-Identifier: BSD-3-Clause
// Scores passages with a model. Data-parallel ranks share the batches; tensor- and pipeline-parallel ranks share the
// model.
#pragma once

#include <functional>
#include <string>

#include "src/engine/model/stage.hpp"
#include "src/evaluation/batches.hpp"
#include "src/evaluation/class_counts.hpp"
#include "src/evaluation/figures.hpp"
#include "src/evaluation/logits.hpp"
#include "src/evaluation/passage.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// Loads the weights of a stage.
using Fill = std::function<void(Stage&)>;

// Optional results: class counts of a classifier, and metrics of the objective. `progress` is called with the number of
// batches that are done, and that of all batches.
struct Counted {
  ClassCounts* classes = nullptr;
  Figures* figures = nullptr;
  std::function<void(std::size_t done, std::size_t batches)> progress = {};
};

// Score of every passage, the same on every rank. Every grid computes the same batches, so results differ only by the
// order of sums inside the model. Writes `logits` if given. Collective.
std::vector<PassageScore> score_passages(const ModelConfig&, DType, Grid&, const Fill&, const Passages&, const BatchLimits&,
                                         LogitsFile* logits = nullptr, Factors = Factors::stored, const Counted& = {});

}  // namespace gyr
