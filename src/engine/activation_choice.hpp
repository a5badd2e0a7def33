// SPDX-License-Identifier: BSD-3-Clause
// The ways to keep activations that people choose from, as their decks would name them.
#pragma once

#include <string>
#include <vector>

#include "src/engine/recompute.hpp"
#include "src/engine/swap_config.hpp"

namespace gyr {

struct ActivationChoice {
  std::string name;
  RecomputeConfig recompute;
  SwapConfig swap;
  bool operator==(const ActivationChoice& other) const { return recompute == other.recompute && swap == other.swap; }
};

// From what keeps most on the device to what keeps least; a file of this deck's serves those that swap.
std::vector<ActivationChoice> activation_choices(const SwapConfig& deck = {});

}  // namespace gyr
