// SPDX-License-Identifier: BSD-3-Clause
// Ranks along the data axis hold the same weights and optimizer state, bit for bit, but for what they have cut among themselves. Where they do
// not, memory or a processor has failed.
#pragma once

#include "src/engine/model/model_state.hpp"

namespace gyr {

// Compares a checksum of weights, masters and moments over the data axis. Exit::numeric on all ranks naming the rank whose numbers are
// not the majority's, or the ranks that differ where there is none. Collective over the grid.
void check_replicas(ModelState&, std::int64_t step);

}  // namespace gyr
