// SPDX-License-Identifier: BSD-3-Clause
// What a model makes of batches that it does not learn from: the mean loss over labelled tokens, or over pairs, and how well it does.
#pragma once

#include "src/engine/step/engine.hpp"
#include "src/evaluation/class_counts.hpp"
#include "src/evaluation/figures.hpp"

namespace gyr {

struct Validation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> figures;  // by name: those of the objective, or of classes
};

class Validator {
 public:
  explicit Validator(Engine&);
  // Batch by batch, on all ranks.
  void add(const MicroBatches& source, int micros);
  Index tokens() const { return tokens_; }
  Validation result() const;  // of one token at least

 private:
  void count(const Scores&);

  Engine& engine_;
  double loss_ = 0;
  Index tokens_ = 0;
  Figures figures_;
  std::optional<ClassCounts> classes_;
};

}  // namespace gyr
