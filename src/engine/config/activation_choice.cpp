// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/activation_choice.hpp"

namespace gyr {

std::vector<ActivationChoice> activation_choices(const OffloadConfig& deck) {
  std::vector<ActivationChoice> choices;
  for (const char* name : recompute_names) choices.push_back({fmt::format("recompute: {}", name), {recompute_of(name)}, {}});
  const auto offloading = [&](const char* name, const char* recompute, double alpha) {
    choices.push_back({name, {recompute_of(recompute)}, {true, alpha, deck.folder}});
  };
  offloading("policy: swap", "none", 1);
  offloading("policy: memo, alpha: 1", "selective", 1);
  offloading("policy: memo, alpha: 0", "selective", 0);
  offloading("policy: swap, recompute: full", "full", 1);
  return choices;
}

}  // namespace gyr
