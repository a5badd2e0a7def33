// SPDX-License-Identifier: BSD-3-Clause
// What ranks do in a step, as a file that Perfetto (ui.perfetto.dev) and chrome://tracing show and `gyrfalcon trace show` sums up. A process is
// a rank, named by its coordinates. Its first track has the tasks of the program and inside them what the rank waited; a second one kernels; and
// every transfer, from its start to the end of the wait for it, has its place below.
#pragma once

#include <filesystem>
#include <optional>

#include "src/parallel/grid.hpp"
#include "src/trace/clock.hpp"
#include "src/trace/trace_config.hpp"
#include "src/trace/trace_text.hpp"

namespace gyr {

class Trace {
 public:
  // Takes memory for the records of a step where there is something to trace. It outlives the engines and grids that it records.
  Trace(const TraceConfig&, std::filesystem::path folder);

  bool takes(Index step) const { return config_.takes(step); }
  bool kernels() const { return config_.kernels; }
  // Before a step. Collective: clocks are compared. What the recorder then gets is written.
  Recorder& begin(Grid&);
  // Behind it, when nothing is recorded any more: gathers what all ranks have and has the first one write FOLDER/step_N.json. Collective;
  // Exit::io on every rank where it fails.
  void write(Index step, Grid&);

 private:
  TraceConfig config_;
  std::filesystem::path folder_;
  std::optional<Recorder> recorder_;
  AlignedClock clock_;
};

// Where the trace of a step lies.
std::filesystem::path trace_path(const std::filesystem::path& folder, Index step);

}  // namespace gyr
