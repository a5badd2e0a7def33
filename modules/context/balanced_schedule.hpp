// SPDX-License-Identifier: BSD-3-Clause
// Schedule of load-balanced causal attention over n context-parallel ranks (Li et al., "DistFlashAttn", 2023). Each
// rank has one contiguous block of tokens. At step 0 it computes its own queries with its own keys. At step t, rank r
// >= t computes its own queries with the keys of rank r - t. The other ranks have no visible keys left: each computes
// the queries of rank r - t + n with its own keys. If 2 t = n they idle, because that rank computes the pair itself. So
// every rank computes one pair per step, and n / 2 steps after step 0 are enough.
#pragma once

#include <vector>

namespace gyr {

enum class Moved { nothing, keys, queries };

// Work of one rank at one step. Results of keys or queries that were sent return to their sender.
struct BalancedStep {
  int queries = -1, keys = -1;  // ranks whose queries and keys form the pair computed here; -1: no pair
  Moved received = Moved::nothing, sent = Moved::nothing;
  int from = -1, to = -1;  // ranks to receive from and to send to; -1: no transfer
};

std::vector<BalancedStep> balanced_schedule(int ranks, int rank);

}  // namespace gyr
