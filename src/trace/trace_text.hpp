// SPDX-License-Identifier: BSD-3-Clause
// Formats a rank's records as events of Chrome's trace format, one per line: complete events for tasks and kernels,
// which nest, and a pair of asynchronous events for each transfer, because transfers overlap.
#pragma once

#include <functional>
#include <string>

#include "kernels/device/recorder.hpp"

namespace gyr {

// Name of the span of the full step, which is the first on the track of tasks.
inline constexpr const char* step_span = "step";

// Identity of a rank in the trace.
struct TraceProcess {
  int rank = 0, position = 0;
  int stage = 0, team = 0;  // stage: coordinate on the pipeline axis; team: 1 if the rank computes only the SSM of hybrid blocks, else 0
  std::string name, host;
};

// Converts a time to nanoseconds of the trace.
using TraceClock = std::function<std::int64_t(Moment)>;

// The events, separated by commas. Spans are clipped to [begin, end].
std::string trace_events(const Recorder&, const TraceProcess&, const TraceClock&, Moment begin, Moment end);

}  // namespace gyr
