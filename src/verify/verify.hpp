// SPDX-License-Identifier: BSD-3-Clause
// Tests a deck's layout on the machine that it will run on: a reduced model must give the same results on all ranks as
// on one.
#pragma once

#include <mpi.h>

#include "src/config/run_config.hpp"

namespace gyr {

// On the first rank, prints the reduced sizes, the error of every comparison and the measured rates of the machine.
// Exit::unequal if an error exceeds its limit. Refuses what train refuses, with the same errors. `seconds_of_start`:
// startup time of this rank so far. Collective over `world`.
void verify(const RunConfig&, double seconds_of_start, MPI_Comm world);

}  // namespace gyr
