// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/run_islands.hpp"

#include <algorithm>

#include "src/base/precision.hpp"

namespace gyr {

RunConfig on_cluster(RunConfig run, const Cluster& cluster, int ranks) {
  check_capacity(cluster, ranks);
  run.planned_gpu = cluster.device.gpu;
  const Islands there = islands_of(cluster, ranks, precision_of(run.train.precision));
  if (Islands& islands = run.parallel.islands; islands.empty()) islands = there;
  else
    require(there.empty() || std::equal(islands.begin(), islands.end(), there.begin(), there.end(),
                                        [](const Island& a, const Island& b) { return a.ranks == b.ranks; }),
            Exit::config, "cluster.emulate = '{}' does not match the islands of '{}', which are {}; remove it or use the same ranks per island",
            to_text(islands), cluster.name, to_text(there));
  return run;
}

}  // namespace gyr
