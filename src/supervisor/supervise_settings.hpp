// SPDX-License-Identifier: BSD-3-Clause
// How a run is looked after from outside: deck keys supervise.*.
#pragma once

#include "modules/settings/settings.hpp"

namespace gyr {

struct SuperviseSettings {
  Index max_restarts = 10;
  double stale = 60;      // seconds in which no rank moves until the job is ended from outside
  double silent = 10;     // seconds in which one rank gives no sign of life and others do, until it is taken for lost
  double slow = 1.7;      // times the median rank's work that make a rank slow ...
  Index slow_steps = 20;  // ... over so many steps
};

SuperviseSettings read_supervise(Section&);

}  // namespace gyr
