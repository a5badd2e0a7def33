// SPDX-License-Identifier: BSD-3-Clause
// Deck keys supervise.*: restarts by gyrfalcon run, and its limits for lost, stale and slow ranks.
#pragma once

#include "modules/settings/settings.hpp"

namespace gyr {

// Restarts before which all ranks are tested with `gyrfalcon selftest`.
enum class SelftestWhen { never, lost, always };

struct SuperviseSettings {
  Index max_restarts = 10;
  double stale = 60;      // seconds without progress of any rank until the job is ended from outside
  double silent = 10;     // seconds without a heartbeat of one rank, while others send theirs, until it counts as lost
  double slow = 1.7;      // multiple of the median rank's work time from which a rank counts as slow (straggler)
  Index slow_steps = 20;  // number of steps over which the work times for `slow` are measured
  SelftestWhen selftest = SelftestWhen::never;
};

SuperviseSettings read_supervise(Section&);

}  // namespace gyr
