// SPDX-License-Identifier: BSD-3-Clause
// Reductions after a step: sums over ranks, together with flags that all ranks must agree on.
#pragma once

#include "src/parallel/grid.hpp"

namespace gyr {

// Values that ranks reduce together. Reduction: `sums` and `dropped` are added; the others take the maximum.
// stop_request: the largest wins. not_finite: 1 if a rank has a value that is not finite. expert_load: maximum expert
// load. dropped: token-expert assignments dropped for lack of capacity.
struct Agreed {
  std::vector<double> sums;
  double stop_request = 0, not_finite = 0, expert_load = 0, dropped = 0;
};

// Reduces over the ranks of one communicator.
Agreed agree_over(Communicator&, const Agreed& mine);
// Reduces over all ranks of a model replica (tensor and pipeline axes, and expert-parallel ranks), each of which has
// its own part of the sums. With ZeRO sharding, over all ranks.
Agreed agree_in_replica(Grid&, const Agreed& mine);
// Reduces over data, context and pipeline axes; only the last stage's sums count. Flags that agree_in_replica has
// reduced before are then equal on all ranks.
Agreed agree_from_last_stage(Grid&, const Agreed& mine);

}  // namespace gyr
