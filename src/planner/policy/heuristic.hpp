// SPDX-License-Identifier: BSD-3-Clause
// Layouts by simple rules, which a search is compared with: all calls on all ranks in one layout, with the fewest tensor-parallel ranks of
// a node, and then the fewest pipeline ranks, with which all models fit. If the deck shards nothing, a sharded optimizer is tried too.
#pragma once

#include <string>
#include <vector>

#include "src/planner/layouts/layout_choice.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// The run with all calls on all ranks, in the layout of training and its precision.
RunConfig in_one_layout(RunConfig);
// Overrides of the deck's keys that give calls a layout or ranks of their own.
std::vector<std::string> lines_of_one_layout(const RunConfig&);
// Layouts to try in this order.
std::vector<LayoutChoice> plain_layouts(const RunConfig&, int ranks, const Cluster&);

}  // namespace gyr
