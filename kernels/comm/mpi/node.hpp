// SPDX-License-Identifier: BSD-3-Clause
// The ranks on one machine, and its cores.
#pragma once

#include <mpi.h>

namespace gyr {

// Communicator of the ranks of `comm` on this rank's machine, in the order of `comm`; the caller frees it. Machines are
// identified by their names: MPI_COMM_TYPE_SHARED puts each rank into a group of its own if MPI does not use shared
// memory, as in Debian's MPICH 5. Collective.
MPI_Comm node_of(MPI_Comm comm);

// Ranks of `world` on this machine, their threads in total, the cores on which they may run together (cores), the cores
// of this rank (cores_of_process), and the index of this rank on the machine (place). Affinity and CPU limits of control
// groups are respected.
struct Crowd {
  int ranks, threads, cores, cores_of_process, place;
  int cores_each() const;  // cores per rank when all ranks compute at the same time, at least one
};
Crowd machine_load_of(MPI_Comm world, int threads = 1);  // collective

}  // namespace gyr
