// SPDX-License-Identifier: BSD-3-Clause
// A description of the machine that a job's ranks are on, measured: each rank is a device, and all measure at once, as they do in a step.
#pragma once

#include <mpi.h>

#include <string>

#include "src/planner/machine/cluster.hpp"

namespace gyr {

struct Probe {
  Cluster cluster;
  std::string comment;  // what was measured, and what was not
};

// Collective over `world`; the same on every rank, by the slowest.
Probe probe_machine(MPI_Comm world);

}  // namespace gyr
