// SPDX-License-Identifier: BSD-3-Clause
// Whether what layers keep for their backward stays on the device: keys activation.policy, alpha, swap_folder. Bits are the same,
// but with a part of the rows: a library may add up products of few rows in another order than those of all.
//   keep        what activation.recompute leaves stays
//   recompute   the same, and activation.recompute is `full` unless it is said
//   swap        what activation.recompute leaves lies on the host meanwhile
//   memo        what a pass over numbers makes is made again, which takes less than moving it would; of what products make, the first rows of a
//               micro-batch, a share alpha of all, are swapped and the others made again; the rest is swapped: what enters a layer, what attention
//               and scans make, states of chunks, without which no row can be made again apart from those before it
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

struct OffloadConfig {
  bool on = false;
  double alpha = 1;         // share of rows of products
  std::string folder = {};  // of a file where it lies; empty: in memory
  bool find_alpha = false;  // activation.alpha: auto; `alpha` says nothing yet

  bool operator==(const OffloadConfig&) const = default;
};

inline constexpr const char* activation_policies[] = {"keep", "recompute", "swap", "memo"};

struct ActivationPolicy {
  OffloadConfig swap;
  std::string recompute;  // what activation.recompute is where the deck does not say it
};
ActivationPolicy read_activation_policy(Section&);

}  // namespace gyr
