// SPDX-License-Identifier: BSD-3-Clause
// The ranks that share a machine, and its cores.
#pragma once

#include <mpi.h>

namespace gyr {

// The ranks of `comm` on this one's machine, in the order of `comm`; the caller frees it. Machines are told apart by their names:
// MPI_COMM_TYPE_SHARED finds every rank alone where MPI moves no bytes through shared memory, as Debian's MPICH 5 does. Collective.
MPI_Comm node_of(MPI_Comm comm);

// The ranks of `world` on this machine and the cores that they together may run on. Collective.
struct Crowd {
  int ranks, cores;
};
Crowd crowd_of(MPI_Comm world);

}  // namespace gyr
