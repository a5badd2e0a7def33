// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/supervise_settings.hpp"

#include "src/base/limits.hpp"

namespace gyr {

SuperviseSettings read_supervise(Section& s) {
  SuperviseSettings c;
  c.max_restarts = s.get("max_restarts", c.max_restarts, "restarts until gyrfalcon run gives up").at_least(0);
  c.stale = s.get("stale", c.stale, "time in which no rank moves until the job is ended; five times the median step where that is more")
                .unit("s")
                .positive();
  c.silent = s.get("silent", c.silent, "time without a heartbeat of a rank until it is taken for lost").unit("s").positive();
  c.slow = s.get("slow", c.slow, "a rank that works so many times as long as the median rank is reported").above(1);
  c.slow_steps = s.get("slow_steps", c.slow_steps, "steps over which that is measured").unit("steps").positive().at_most(most_steps);
  return c;
}

}  // namespace gyr
