// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace_config.hpp"

#include "src/base/limits.hpp"

namespace gyr {

TraceConfig read_trace(Section& s) {
  TraceConfig c;
  c.on = s.get("on", false, "write a timeline of every rank in the steps of trace.steps to OUTPUT/trace, for gyrfalcon trace show and Perfetto");
  c.steps = s.get("steps", std::vector<Index>{2, 3, 4}, "steps to trace, one file each; the first step of a run is not representative")
                .positive()
                .at_most(most_steps)
                .value();
  c.kernels = s.get("kernels", false, "trace kernels as well, on a separate track; the files become many times larger");
  require(!c.on || !c.steps.empty(), Exit::config, "trace.steps is empty: list the steps to trace, such as [2, 3, 4], or set trace.on to false");
  return c;
}

}  // namespace gyr
