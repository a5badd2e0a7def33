// SPDX-License-Identifier: BSD-3-Clause
// Search space: all candidate layouts of a run on a given number of ranks. They are all factorisations over the parallel axes, combined with the
// other settings. Layouts that the rules of the deck reject are left out, and the reason is recorded.
//   axes              data x pipeline x context x tensor equals the number of ranks; experts are distributed over any of the data x context ranks
//   virtual stages    counts that distribute the layers evenly over all stages, and powers of two
//   micro-batch       divisors of the global batch
// The deck's stage boundaries, order of axes and permutation are not changed, nor are the settings that parallel.keep names.
#pragma once

#include "src/planner/layouts/layout_choice.hpp"
#include "src/planner/layouts/refusals.hpp"

namespace gyr {

struct LayoutSpace {
  std::vector<LayoutChoice> shapes;  // layouts with their first schedule, recomputation setting and sharding level
  Refusals refusals;
  double layouts = 0;  // number of layouts of all shapes, including rejected ones
};

LayoutSpace space_of(const RunConfig&, int ranks);

// Schedules, recomputation settings and sharding levels that a shape can be combined with.
std::vector<int> schedules_of(const RunConfig&, const LayoutChoice&, int micros);
std::vector<int> recomputations_of(const RunConfig&);
std::vector<Shard> shards_of(const RunConfig&, const LayoutChoice&);
// All layouts of a shape.
std::vector<LayoutChoice> variants_of(const RunConfig&, const LayoutChoice& shape);
int micros_of(const RunConfig&, const LayoutChoice&);
// The layout as the search writes it: settings that have no effect in it get the value of the first variant.
LayoutChoice in_search_form(const RunConfig&, LayoutChoice);

}  // namespace gyr
