// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// A run on the islands of a machine, where its deck names none. Exit::config where it names others, or has more ranks than there are devices.
RunConfig on_islands(RunConfig, const Cluster&, int ranks);

}  // namespace gyr
