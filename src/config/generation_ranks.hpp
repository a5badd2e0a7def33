// SPDX-License-Identifier: BSD-3-Clause
// Ranks of a run of policy training that generate, and those that train. With rl.generate.separate, no rank does both.
#pragma once

#include "src/config/run_config.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr {

// Exit::config if rl.generate.ranks names ranks that a run of `ranks` ranks does not have.
Mesh generating_ranks(const RunConfig&, int ranks);
// All ranks, or those that rl.generate.separate leaves for training. Exit::config if these lack rank 0.
Mesh training_ranks(const RunConfig&, int ranks);
// Ranks of a run whose training has this layout.
int ranks_of_run(const RunConfig&, const Layout& training);

}  // namespace gyr
