// SPDX-License-Identifier: BSD-3-Clause
// The ways to keep activations that people choose from, as their decks would name them.
#pragma once

#include <string>
#include <vector>

#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/recompute.hpp"

namespace gyr {

struct ActivationChoice {
  std::string name;
  RecomputeConfig recompute;
  OffloadConfig swap;
  bool operator==(const ActivationChoice& other) const { return recompute == other.recompute && swap == other.swap; }
};

// From what keeps most on the device to what keeps least; a file of this deck's serves those that swap.
std::vector<ActivationChoice> activation_choices(const OffloadConfig& deck = {});

}  // namespace gyr
