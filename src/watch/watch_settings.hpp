// SPDX-License-Identifier: BSD-3-Clause
// Deck keys watchdog.*: heartbeat interval and time limit for hangs.
#pragma once

#include "modules/settings/settings.hpp"

namespace gyr {

struct WatchSettings {
  double patience = 600;      // seconds without progress of this rank until the job is ended; 0: never
  double interval = 1;        // seconds between heartbeats
  double lock_patience = 60;  // seconds that a run may wait for its output folder (src/job/run_lock.hpp); added to `patience` until it has the folder
};

WatchSettings read_watch(Section&);

}  // namespace gyr
