// SPDX-License-Identifier: BSD-3-Clause
// Calls of an iteration as a part of a pair (pair_search.hpp).
#pragma once

#include <map>
#include <string>

#include "src/planner/policy/iteration_times.hpp"
#include "src/planner/policy/pair_search.hpp"

namespace gyr {

// Adds up the seconds of calls and the memory of each rank. Calls of one model keep its weights once.
class PartOfCalls {
 public:
  explicit PartOfCalls(int ranks);

  void add(const PlannedCall&);
  void add(const std::vector<PlannedCall>&);
  PlanPart part() const;

 private:
  PlanPart part_;
  std::map<std::string, std::vector<double>> kept_;  // by model and rank
};

// Usable bytes of the devices of the first `ranks` ranks.
std::vector<double> usable_bytes(const Cluster&, int ranks);
// Bytes of the rank that has least memory left with these parts; empty if they are too large for a rank.
std::optional<double> bytes_that_fit(const std::vector<const PlanPart*>& parts, const std::vector<double>& usable);

}  // namespace gyr
