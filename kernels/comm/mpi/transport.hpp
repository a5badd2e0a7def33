// SPDX-License-Identifier: BSD-3-Clause
// MPI transport: non-blocking operations, completed by polling. Nothing ever blocks inside MPI, because MPICH spins
// while it waits, and ranks that share a core would then starve each other (measured: 8 ranks on 2 cores, 60 times
// slower).
#pragma once

#include <mpi.h>

#include "kernels/device/transport.hpp"

namespace gyr {

// Waiting between polls. spin: poll again at once, if every thread of every rank has a core. yield: let other threads
// run between polls, and sleep after many polls without progress. (With sleep only, 8 ranks on 2 cores took four times
// as long, because each message then waits for the sleep.)
enum class WaitPolicy { spin, yield };

// Yield if the ranks on this machine have more threads than cores, otherwise spin. Collective.
WaitPolicy wait_policy_of(MPI_Comm world);

// Takes ownership of `comm` and frees it. MPI errors abort the job (MPI's own error handler).
std::unique_ptr<Transport> mpi_transport(MPI_Comm comm, WaitPolicy patience);

}  // namespace gyr
