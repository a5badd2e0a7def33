// SPDX-License-Identifier: BSD-3-Clause
// Where the ranks of a communicator stand in a cluster.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/parallel/layout.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// So many ranks on so many nodes of so many islands.
struct GroupPlacement {
  int ranks = 1, nodes = 1, islands = 1;
  int on_largest_node = 1;
  int island = 0;  // that they are on, where it is one
  bool operator==(const GroupPlacement&) const = default;
};

// Of ranks of the job, which fill node after node.
GroupPlacement placement_of(const std::vector<int>& ranks, const Cluster&);

// On each island that has one, the first replica of a position. Of equal islands the first stands for all.
std::map<int, int> on_islands(const Layout&, int position, const Cluster&);

// The ranks of the communicator of this name (Grid::visit) that a position is in.
std::vector<int> ranks_of(const Layout&, int position, const std::string& communicator);

}  // namespace gyr
