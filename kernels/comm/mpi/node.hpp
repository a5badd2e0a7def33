// SPDX-License-Identifier: BSD-3-Clause
// The ranks that share a machine, and its cores.
#pragma once

#include <mpi.h>

namespace gyr {

// The ranks of `comm` on this one's machine, in the order of `comm`; the caller frees it. Machines are told apart by their names:
// MPI_COMM_TYPE_SHARED finds every rank alone where MPI moves no bytes through shared memory, as Debian's MPICH 5 does. Collective.
MPI_Comm node_of(MPI_Comm comm);

// The ranks of `world` on this machine, the threads that they say they have, the cores that they together may run on, and those that this rank
// may; and the place of this rank among those of its machine. Collective.
struct Crowd {
  int ranks, threads, cores, own, place;
  int cores_each() const;  // for every rank to use at the same time, at least one
};
Crowd machine_load_of(MPI_Comm world, int threads = 1);

}  // namespace gyr
