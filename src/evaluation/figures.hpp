// SPDX-License-Identifier: BSD-3-Clause
// Figures of an objective (Objective::figures) over micro-batches and ranks.
#pragma once

#include "modules/objectives/objective.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

class Figures {
 public:
  explicit Figures(const Objective& objective) : objective_(objective), here_(objective.figures({})), all_(here_) {}

  bool empty() const { return all_.empty(); }
  // On one rank of those that share a row of the last stage, each of which says the same.
  void add(const ObjectiveScores&);
  // What all ranks have added since the last time. Collective.
  void share(Grid&, Device&);
  // Names and means of what has been shared, without those that nothing was said for.
  std::vector<std::pair<std::string, double>> means() const;

 private:
  const Objective& objective_;
  std::vector<Figure> here_, all_;
};

}  // namespace gyr
