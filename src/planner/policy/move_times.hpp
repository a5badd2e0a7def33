// SPDX-License-Identifier: BSD-3-Clause
// Seconds of a move of weights between layouts: the rank that sends or receives longest, and the rank that copies most of its
// own memory.
//   sum over peers of messages L + B/W; then (bytes read + bytes written) / (memory x bandwidth)
// L, W: latency and bandwidth of the link to the peer; B: bytes; a message has at most 32 MiB
#pragma once

#include "src/parallel/moves.hpp"
#include "src/planner/machine/cluster.hpp"

namespace gyr {

double move_seconds(const MovePlan&, const Cluster&);

}  // namespace gyr
