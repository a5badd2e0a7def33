// SPDX-License-Identifier: BSD-3-Clause
// What a step does about the balance of experts without a term of the loss: biases of the router's scores go up by a rate for experts that fewer
// tokens have chosen than the mean, and down for the others (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts",
// 2024; DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024). What is counted are whole numbers, so that every grid takes the same steps.
#pragma once

#include "src/engine/config/optimizer_config.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

// On the device: none is chosen yet; and all that ranks with other tokens have counted.
void clear_choices(Device&, ExpertLoads&);
void sum_choices(Device&, Grid&, const ExpertLoads&);

// How often each expert was chosen, one layer's behind the other's.
using ExpertChoices = std::vector<double>;
ExpertChoices expert_choices(Device&, const ExpertLoads&);
// The most chosen expert of any layer of this rank by what an even share is; 0: no expert was chosen.
double maximum_expert_load(const ExpertLoads&, const ExpertChoices&);
// Choices of this rank's rows that experts had no room for.
double dropped_choices(const ExpertLoads&);
// Moves the biases that this rank keeps, but for those that are frozen.
void move_biases(Device&, const ExpertLoads&, const ExpertChoices&, double rate, const OptimizerConfig&);

}  // namespace gyr
