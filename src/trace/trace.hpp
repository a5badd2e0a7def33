// SPDX-License-Identifier: BSD-3-Clause
// Timeline of all ranks in a step, as a file for Perfetto (ui.perfetto.dev), chrome://tracing and `gyrfalcon trace
// show`. Each rank is a process, named by its grid coordinates. Its first track has the tasks of the schedule and the
// waits inside them, the second has the kernels. Every transfer is shown below them, from its start to the end of the
// wait for it.
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
  // Allocates memory for the records of a step if tracing is on. Must outlive the engines and grids that it records.
  Trace(const TraceConfig&, std::filesystem::path folder);

  bool takes(Index step) const { return config_.takes(step); }
  bool kernels() const { return config_.kernels; }
  // Called before a step: aligns the clocks and returns the recorder for the step. Collective.
  Recorder& begin(Grid&);
  // Called after the step, once recording has ended. Gathers the records of all ranks; the first rank writes
  // FOLDER/step_N.json. Collective. An error is thrown on every rank as Exit::io.
  void write(Index step, Grid&);

 private:
  TraceConfig config_;
  std::filesystem::path folder_;
  std::optional<Recorder> recorder_;
  AlignedClock clock_;
};

// Path of the trace file of a step.
std::filesystem::path trace_path(const std::filesystem::path& folder, Index step);

}  // namespace gyr
