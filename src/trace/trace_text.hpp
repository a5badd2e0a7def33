// SPDX-License-Identifier: BSD-3-Clause
// A rank's records as events of Chrome's trace format, one a line: complete events on the tracks of tasks and kernels, which nest, and a pair of
// asynchronous ones for each transfer, of which several are under way at once.
#pragma once

#include <functional>
#include <string>

#include "kernels/device/recorder.hpp"

namespace gyr {

// The name that the span of the whole step has, which is the first on the track of tasks.
inline constexpr const char* step_span = "step";

// How a rank appears.
struct TraceProcess {
  int rank = 0, position = 0;
  int stage = 0, team = 0;  // its coordinate on the pipeline axis; 1 where it computes the SSM alone of hybrid blocks
  std::string name, host;
};

// Whole nanoseconds of the trace's time.
using TraceClock = std::function<std::int64_t(Moment)>;

// The events with commas between them. What was under way before `begin` or is behind `end` appears cut there.
std::string trace_events(const Recorder&, const TraceProcess&, const TraceClock&, Moment begin, Moment end);

}  // namespace gyr
