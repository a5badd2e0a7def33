// SPDX-License-Identifier: BSD-3-Clause
// Candidate layouts of generation with a copy of the weights.
//   ranks      those of the deck; if it names none: all, and aligned runs of 2^k ranks in a node or of 2^k nodes, of at least an eighth of all
//   precision  that of the deck; if it names none: that of training, and bf16
//   tensor, pipeline  powers of two; tensor-parallel ranks are on one node
#pragma once

#include <vector>

#include "src/config/run_config.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

// Settings of rl.generate, which the rules of the deck may still refuse.
std::vector<GenerationLayout> copy_candidates(const RunConfig&, int ranks, const Cluster&);

}  // namespace gyr
