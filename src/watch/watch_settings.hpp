// SPDX-License-Identifier: BSD-3-Clause
// When a job that hangs is ended: deck keys watchdog.*.
#pragma once

#include "modules/settings/settings.hpp"

namespace gyr {

struct WatchSettings {
  double patience = 600;      // seconds without progress of this rank until the job is ended; 0: never
  double interval = 1;        // seconds between heartbeats
  double lock_patience = 60;  // seconds for which a run may wait for its folder (src/job/run_lock.hpp), on top of `patience` until it has it
};

WatchSettings read_watch(Section&);

}  // namespace gyr
