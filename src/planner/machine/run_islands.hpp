// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// Sets the islands of the run to those of the cluster if the deck names none. Throws Exit::config if the deck names
// other islands, or if the run has more ranks than the cluster has devices.
RunConfig on_islands(RunConfig, const Cluster&, int ranks);

}  // namespace gyr
