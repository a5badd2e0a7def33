// SPDX-License-Identifier: BSD-3-Clause
// All layouts that so many ranks can have for a run: every factorisation over the axes with what goes with it. What the deck's own rules refuse is
// not among them, and the rule is kept.
//   axes              data x pipeline x context x tensor is the number of ranks, experts are dealt among any of the data x context ranks
//   virtual stages    those that divide the layers evenly among all stages, and powers of two
//   micro-batch       what the global batch divides by
// The deck's stage cuts, order of axes and permutation stay, and so does what parallel.keep names.
#pragma once

#include "src/planner/layouts/layout_choice.hpp"
#include "src/planner/layouts/refusals.hpp"

namespace gyr {

struct LayoutSpace {
  std::vector<LayoutChoice> shapes;  // layouts but for schedule, recomputation and shard level, which are their first
  Refusals refusals;
  double layouts = 0;  // of all shapes together with what was refused
};

LayoutSpace space_of(const RunConfig&, int ranks);

// What a shape may be besides.
std::vector<int> schedules_of(const RunConfig&, const LayoutChoice&, int micros);
std::vector<int> recomputations_of(const RunConfig&);
std::vector<Shard> shards_of(const RunConfig&, const LayoutChoice&);
// Every layout of a shape.
std::vector<LayoutChoice> variants_of(const RunConfig&, const LayoutChoice& shape);
int micros_of(const RunConfig&, const LayoutChoice&);

}  // namespace gyr
