// SPDX-License-Identifier: BSD-3-Clause
// Reads the times from a trace file (trace.hpp). The file may come from any source: anything but a gyrfalcon trace is
// refused with Exit::data, and names in it may contain any characters.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "src/trace/intervals.hpp"

namespace gyr {

// All times are in microseconds.
struct TracedTask {
  std::string name;
  Interval time;
  Index chunk = -1, micro = -1;
};

struct TracedWait {
  std::string communicator, operation;
  Interval time;
};

struct TracedRank {
  std::string name, host;
  Index stage = 0, team = 0;
  std::vector<Interval> steps, transfers;
  std::vector<TracedTask> tasks;  // tasks of the schedule, excluding the span of the step
  std::vector<TracedWait> waits;
};

struct TraceFile {
  std::string path;
  Index step = 0, left_out = 0;  // left_out: number of records that did not fit into memory
  std::map<Index, TracedRank> ranks;
};

TraceFile read_trace_file(const std::filesystem::path&);
// Reads one trace file, or all in a folder in the order of steps; for a run's folder, those in its subfolder trace.
// Exit::missing if there are none.
std::vector<TraceFile> read_traces(const std::filesystem::path& file_or_folder);

}  // namespace gyr
