// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace_config.hpp"

#include "src/base/limits.hpp"

namespace gyr {

TraceConfig read_trace(Section& s) {
  TraceConfig c;
  c.on = s.get("on", false, "write what every rank did when in the steps of trace.steps to OUTPUT/trace, for gyrfalcon trace show and Perfetto");
  c.steps = s.get("steps", std::vector<Index>{2, 3, 4}, "steps that are traced, each into a file of its own; the first of a run is like no other")
                .positive()
                .at_most(most_steps)
                .value();
  c.kernels = s.get("kernels", false, "kernels too, on a track of their own: a file many times as large");
  require(!c.on || !c.steps.empty(), Exit::config, "trace.steps is empty: name the steps that trace.on shall write, as [2, 3, 4]");
  return c;
}

}  // namespace gyr
