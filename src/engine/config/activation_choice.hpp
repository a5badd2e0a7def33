// SPDX-License-Identifier: BSD-3-Clause
// The activation policies (keep, recompute, offload) that reports and limits compare, named as a deck would name them.
#pragma once

#include <string>
#include <vector>

#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/recompute.hpp"

namespace gyr {

struct ActivationChoice {
  std::string name;
  RecomputeConfig recompute;
  OffloadConfig offload;
  bool operator==(const ActivationChoice& other) const { return recompute == other.recompute && offload == other.offload; }
};

// Ordered from most to least activation memory on the device. `deck`: its swap_folder is used by the choices that
// offload.
std::vector<ActivationChoice> activation_choices(const OffloadConfig& deck = {});

}  // namespace gyr
