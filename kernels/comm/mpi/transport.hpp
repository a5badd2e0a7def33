// SPDX-License-Identifier: BSD-3-Clause
// Transport over MPI: non-blocking operations, polled. Nothing ever blocks inside MPI, because MPICH spins while it waits and
// ranks that share a core would then starve each other (measured: 8 ranks on 2 cores, 60 times slower).
#pragma once

#include <mpi.h>

#include "kernels/device/transport.hpp"

namespace gyr {

// How to wait: spin where every thread of every rank has a core; where they share, let others run between polls, and sleep when nothing comes for
// long (8 ranks on 2 cores took four times as long with sleep alone, which a message then waits for).
enum class WaitPolicy { spin, yield };

// Yield when the ranks on this machine have more threads than it has cores for them. Collective.
WaitPolicy wait_policy_of(MPI_Comm world);

// Takes ownership of `comm` and frees it. Errors of MPI are fatal to the job (MPI's own handler).
std::unique_ptr<Transport> mpi_transport(MPI_Comm comm, WaitPolicy patience);

}  // namespace gyr
