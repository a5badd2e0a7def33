// SPDX-License-Identifier: BSD-3-Clause
// Seconds of a collective or point-to-point transfer among placed ranks. Every step costs alpha + beta * bytes on the slowest link that it uses.
// The faster of two algorithms is taken, as communication libraries do:
//   ring   the n ranks pass on 1/n of the data at a time: n - 1 steps, and 2 (n - 1) for an all-reduce
//   tree   over the nodes, then inside each node: all data goes up and down, in as many steps as the tree is high
//   B      bytes that a rank passes to the call (kernels/device/traffic.hpp): its shard for an all-gather, the full tensor otherwise
#pragma once

#include "kernels/device/traffic.hpp"
#include "src/planner/machine/ranks.hpp"

namespace gyr {

// Seconds of all operations in Traffic: `calls` operations that move `bytes` bytes in total. A receive costs 0, because
// its send is counted.
double seconds_of(Operation, const Traffic&, const GroupPlacement&, const Cluster&);

}  // namespace gyr
