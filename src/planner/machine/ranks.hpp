// SPDX-License-Identifier: BSD-3-Clause
// Placement of the ranks of a communicator in a cluster.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/parallel/layout.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// Size of a group of ranks: how many ranks it has, and on how many nodes and islands they are.
struct GroupPlacement {
  int ranks = 1, nodes = 1, islands = 1;
  int max_ranks_per_node = 1;  // maximum number of ranks on one node
  int island = 0;              // index of the group's island if it is on a single one; else 0
  bool operator==(const GroupPlacement&) const = default;
};

// Placement of these ranks of the job. Ranks fill the cluster node by node.
GroupPlacement placement_of(const std::vector<int>& ranks, const Cluster&);

// By island: position of the first data-parallel replica of `position` on that island. If all islands are alike, only
// island 0 is returned.
std::map<int, int> on_islands(const Layout&, int position, const Cluster&);

// Ranks of the communicator with this name (Grid::visit) that contains `position`.
std::vector<int> ranks_of(const Layout&, int position, const std::string& communicator);

}  // namespace gyr
