// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/watch_settings.hpp"

namespace gyr {

WatchSettings read_watch(Section& s) {
  WatchSettings c;
  c.patience =
      s.get("seconds", 600.0, "time without progress of a rank, in computation or in any communicator, until the job is ended with code 75; 0: never")
          .unit("s")
          .at_least(0);
  c.interval = s.get("heartbeat", 1.0, "time between records in OUTPUT/heartbeat.bin").unit("s").at_least(0.01).at_most(60);
  return c;
}

}  // namespace gyr
