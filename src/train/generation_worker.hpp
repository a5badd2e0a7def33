// SPDX-License-Identifier: BSD-3-Clause
// The work of a rank that only generates (rl.generate.separate).
#pragma once

#include <mpi.h>

#include "src/config/run_config.hpp"
#include "src/train/generation_orders.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

// Carries out the orders of the ranks that train, until they end. `world`: the ranks of the run in order. Exit::config if
// memory.device_bytes is too small.
void generate_on_orders(const RunConfig&, const Identity&, GenerationOrders&, MPI_Comm world, Watch&);

}  // namespace gyr
