// SPDX-License-Identifier: BSD-3-Clause
// Seconds of a transfer among ranks that stand so, each step of it alpha + beta bytes on the slowest link it uses. Libraries choose, and so do we,
// the faster of
//   ring   n ranks in a circle pass n-th parts on: (n - 1) steps, or twice that for a sum that all have
//   tree   of nodes, then inside each: the whole goes up and down, in as many steps as the tree is high
//   B      bytes that a rank hands over (kernels/device/traffic.hpp): of all_gather its part, of the others the whole
#pragma once

#include "kernels/device/traffic.hpp"
#include "src/planner/machine/ranks.hpp"

namespace gyr {

// Of `calls` transfers of together so many bytes. A receive costs nothing: its send does.
double seconds_of(Operation, const Traffic&, const GroupPlacement&, const Cluster&);

}  // namespace gyr
