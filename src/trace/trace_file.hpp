// SPDX-License-Identifier: BSD-3-Clause
// A file that a run has written (trace.hpp), read for its times. Whoever has written it: what is no such trace is refused with Exit::data, and
// names in it are anybody's.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "src/trace/intervals.hpp"

namespace gyr {

// Times are microseconds.
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
  std::vector<TracedTask> tasks;  // without the step itself
  std::vector<TracedWait> waits;
};

struct TraceFile {
  std::string path;
  Index step = 0, left_out = 0;  // left_out: records that did not fit
  std::map<Index, TracedRank> ranks;
};

TraceFile read_trace_file(const std::filesystem::path&);
// A file, or those of a folder step by step; also the folder of a run, which has them in one of its own. Exit::missing where there is none.
std::vector<TraceFile> read_traces(const std::filesystem::path& file_or_folder);

}  // namespace gyr
