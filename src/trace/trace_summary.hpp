// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a trace did with their time, and which of them are slow.
//   step = busy + exposed + bubble + rest
//   busy      in tasks, less all waiting
//   exposed   waiting for a transfer, by communicator
//   bubble    waiting for a message of a neighbour in the pipeline
//   rest      neither in a task nor waiting
//   hidden    not waiting while a transfer is under way: no part of the sum
// A rank is slow whose work (busy and rest of the step, or the median micro-batch's forward or backward of a chunk without what it waits) takes more
// than slow_factor times that of the median rank: of the ranks of its stage, or of all where the stage is this rank alone. Where mixers are apart
// teams are compared by themselves. Of an even number of ranks the median is the lower one in the middle, so that of two the slower can be named.
#pragma once

#include "src/trace/trace_file.hpp"

namespace gyr {

inline constexpr double slow_factor = 1.2;

// Seconds; of a step, on average over those that were traced.
struct RankSummary {
  Index rank = 0, stage = 0, team = 0;
  std::string name, host;
  double step = 0, busy = 0, bubble = 0, rest = 0, hidden = 0;
  std::map<std::string, double> exposed;      // by communicator
  std::map<Index, double> forward, backward;  // by chunk: the median micro-batch's

  double work() const { return busy + rest; }
};

std::vector<RankSummary> summary_of(const std::vector<TraceFile>&);

// One of the columns by which ranks are compared.
struct Comparison {
  std::string what;              // "forward", "work", with chunks: "forward 1"
  std::vector<double> seconds;   // of each rank; 0: it has none
  std::vector<double> relative;  // to the median of those it is compared with; 0: none
};
std::vector<Comparison> comparisons_of(const std::vector<RankSummary>&);

// Tables, a map of the ranks shaded by time, and the names of slow ranks, for people.
std::string trace_report(const std::vector<TraceFile>&);

}  // namespace gyr
