// SPDX-License-Identifier: BSD-3-Clause
// Measures the machine of a job and returns it as a cluster description. Every rank counts as a device, and all ranks
// measure at the same time, as in a training step.
#pragma once

#include <mpi.h>

#include <string>

#include "src/planner/machine/cluster.hpp"

namespace gyr {

struct Probe {
  Cluster cluster;
  std::string comment;  // states what was measured and what was not
};

// Collective over `world`. Every rank returns the same description, which holds the values of the slowest rank.
Probe probe_machine(MPI_Comm world);

}  // namespace gyr
