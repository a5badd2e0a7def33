// SPDX-License-Identifier: BSD-3-Clause
// Order in which an iteration of policy training uses its rollouts: minibatches, each an optimizer step, and windows of
// train.seq_length tokens, into which the rollouts of a minibatch are packed. Both depend on the rollouts alone, not on the layout.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Minibatches of the B rollouts of an iteration, in the order of ids within each. Rollout i draws u_i from the stream
// "minibatches K", and minibatch m of M takes places [mB/M, (m+1)B/M) of the order by (u, i). M divides B.
std::vector<std::vector<Index>> draw_minibatches(std::uint64_t seed, std::int64_t iteration, Index rollouts, Index minibatches);
// Order of the minibatches in an epoch, drawn likewise from the stream "order K/EPOCH".
std::vector<Index> draw_order(std::uint64_t seed, std::int64_t iteration, Index epoch, Index minibatches);

// First-fit packing: each item in turn goes to the first window with room. Returns the items of each window, in order. No
// length exceeds `window`.
std::vector<std::vector<Index>> first_fit(const std::vector<Index>& lengths, Index window);

}  // namespace gyr
