// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// The run as planned on a cluster: with the memory of its kind of device, and with its islands if the deck names none.
// Throws Exit::config if the deck names other islands, or if the run has more ranks than the cluster has devices.
RunConfig on_cluster(RunConfig, const Cluster&, int ranks);

}  // namespace gyr
