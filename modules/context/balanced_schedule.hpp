// SPDX-License-Identifier: BSD-3-Clause
// Which queries meet which keys where, when ranks that share sequences balance causal attention (Li et al., "DistFlashAttn", 2023). Each of n
// ranks has one block of neighbouring tokens. At step 0 its queries meet its own keys. At step t rank r >= t meets the keys of rank r - t. The
// others have met all that they may see, and help: each meets its own keys with the queries of rank r - t + n, unless 2 t = n, where that rank does
// so itself. So every rank computes one pair of blocks at a step, and n / 2 steps behind the first are enough.
#pragma once

#include <vector>

namespace gyr {

enum class Moved { nothing, keys, queries };

// What a rank does at a step. What comes of keys or queries that were sent goes back the way they came.
struct BalancedStep {
  int queries = -1, keys = -1;  // ranks whose queries meet whose keys here; -1: none do
  Moved received = Moved::nothing, sent = Moved::nothing;
  int from = -1, to = -1;  // ranks
};

std::vector<BalancedStep> balanced_schedule(int ranks, int rank);

}  // namespace gyr
