// SPDX-License-Identifier: BSD-3-Clause
// What all ranks know after a step: sums, and with them what one rank alone has met.
#pragma once

#include "src/parallel/grid.hpp"

namespace gyr {

// Sums over ranks, as many on each, and what is agreed on with them: the greatest stop request, whether a rank has a number that is not finite, the
// load of the fullest expert, and how many choices experts have dropped on all of them.
struct Agreed {
  std::vector<double> sums;
  double stop_request = 0, not_finite = 0, expert_load = 0, dropped = 0;
};

Agreed agree_over(Communicator&, const Agreed& mine);
// Over all ranks of a replica, with those that hold its other experts: each has its own part of the sums. Over all ranks where replicas cut it among
// themselves.
Agreed agree_in_replica(Grid&, const Agreed& mine);
// Over all ranks; the sums are those over the data and context axes as the last stage has them.
Agreed agree_from_last_stage(Grid&, const Agreed& mine);

}  // namespace gyr
