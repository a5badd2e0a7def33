// SPDX-License-Identifier: BSD-3-Clause
// Data-parallel replicas hold the same weights and optimizer state, bit for bit, except what is sharded among them. If
// they differ, memory or a processor has failed.
#pragma once

#include "src/engine/model/model_state.hpp"

namespace gyr {

// Compares checksums of weights, master weights and states over the data axis. Exit::numeric on all ranks naming the
// rank whose values differ from the majority, or without a majority the ranks that differ. Collective over the grid.
void check_replicas(ModelState&, std::int64_t step);

}  // namespace gyr
