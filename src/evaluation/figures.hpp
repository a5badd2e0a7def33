// SPDX-License-Identifier: BSD-3-Clause
// Metrics of an objective (Objective::figures), summed over micro-batches and ranks.
#pragma once

#include "modules/objectives/objective.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

class Figures {
 public:
  explicit Figures(const Objective& objective) : objective_(objective), here_(objective.figures({})), all_(here_) {}

  bool empty() const { return all_.empty(); }
  // Adds the metrics of a micro-batch. Call it on one of the ranks that share a row of the last stage, because all of
  // them have the same values.
  void add(const ObjectiveScores&);
  // Adds up what all ranks have added since the last call. Collective.
  void sum_over_ranks(Grid&, Device&);
  // Names and means of the metrics that sum_over_ranks() has summed, without those that have no data.
  std::vector<std::pair<std::string, double>> means() const;

 private:
  const Objective& objective_;
  std::vector<Figure> here_, all_;
};

}  // namespace gyr
