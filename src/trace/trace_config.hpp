// SPDX-License-Identifier: BSD-3-Clause
// Deck keys trace.*: steps to trace.
#pragma once

#include <vector>

#include "modules/settings/settings.hpp"

namespace gyr {

struct TraceConfig {
  bool on = false;
  std::vector<Index> steps;
  bool kernels = false;

  bool takes(Index step) const { return on && std::find(steps.begin(), steps.end(), step) != steps.end(); }
};

TraceConfig read_trace(Section&);

}  // namespace gyr
