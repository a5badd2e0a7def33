// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/supervise_settings.hpp"

#include "src/base/limits.hpp"

namespace gyr {

SuperviseSettings read_supervise(Section& s) {
  SuperviseSettings c;
  c.max_restarts = s.get("max_restarts", c.max_restarts, "maximum number of restarts by gyrfalcon run").at_least(0);
  c.stale = s.get("stale", c.stale, "time without progress of any rank until the job is ended; at least five times the median step time")
                .unit("s")
                .positive();
  c.silent = s.get("silent", c.silent, "time without a heartbeat of one rank until it counts as lost").unit("s").positive();
  c.slow = s.get("slow", c.slow, "straggler threshold: a rank that works this many times as long as the median rank is reported").above(1);
  c.slow_steps = s.get("slow_steps", c.slow_steps, "steps over which stragglers are measured").unit("steps").positive().at_most(most_steps);
  c.selftest =
      get_word(s, "selftest", c.selftest, {"never", "lost", "always"},
               "self-test of all ranks (gyrfalcon selftest) before a restart: never, after a lost or slow rank, always; the run ends with 69 "
               "and the faulty hosts if it fails");
  return c;
}

}  // namespace gyr
