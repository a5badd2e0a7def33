// SPDX-License-Identifier: BSD-3-Clause
// Validation: mean loss over the labelled tokens (or text pairs) of batches that are not trained on, and the metrics of
// the objective.
#pragma once

#include "src/engine/step/engine.hpp"
#include "src/evaluation/class_counts.hpp"
#include "src/evaluation/figures.hpp"

namespace gyr {

struct Validation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> figures;  // metrics of the objective or of classification, by name
};

class Validator {
 public:
  explicit Validator(Engine&);
  // Evaluates one global batch. Collective over all ranks.
  void add(const MicroBatches& source, int micros);
  Index tokens() const { return tokens_; }
  Validation result() const;  // requires at least one labelled token

 private:
  void count(const Scores&);

  Engine& engine_;
  double loss_ = 0;
  Index tokens_ = 0;
  Figures figures_;
  std::optional<ClassCounts> classes_;
};

}  // namespace gyr
