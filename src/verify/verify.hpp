// SPDX-License-Identifier: BSD-3-Clause
// The proof of a deck's layout on the machine that it will run on: the deck made small computes on all ranks what it does on one.
#pragma once

#include <mpi.h>

#include "src/config/run_config.hpp"

namespace gyr {

// Prints what was made small, every law with its error, and what the machine gives, on the first rank. Exit::unequal where a law is broken; what
// train refuses is refused as it does. `seconds_of_start`: of this rank until here. Collective over `world`.
void verify(const RunConfig&, double seconds_of_start, MPI_Comm world);

}  // namespace gyr
