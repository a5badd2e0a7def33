// SPDX-License-Identifier: BSD-3-Clause
// Auxiliary-loss-free balancing of experts. After a step, the router bias of an expert rises by `rate` if fewer tokens
// than the mean have chosen it, and falls by `rate` if more have (Wang et al., "Auxiliary-Loss-Free Load Balancing
// Strategy for Mixture-of-Experts", 2024; DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024). Token counts are
// integers, so that every grid makes the same updates.
#pragma once

#include "src/engine/config/optimizer_config.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// On the device: sets the token counts of all experts to zero; sums them over the ranks with other tokens (data and
// context axes).
void clear_choices(Device&, ExpertLoads&);
void sum_choices(Device&, Grid&, const ExpertLoads&);

// Tokens that have chosen each expert, layer after layer.
using ExpertChoices = std::vector<double>;
ExpertChoices expert_choices(Device&, const ExpertLoads&);
// Maximum expert load of any layer of this rank: tokens of the most chosen expert / mean over the layer's experts. 0:
// no expert was chosen.
double maximum_expert_load(const ExpertLoads&, const ExpertChoices&);
// Token-expert assignments of this rank that were dropped for lack of capacity.
double dropped_choices(const ExpertLoads&);
// Updates the router biases that this rank keeps, except frozen ones.
void move_biases(Device&, const ExpertLoads&, const ExpertChoices&, double rate, const OptimizerConfig&);

}  // namespace gyr
