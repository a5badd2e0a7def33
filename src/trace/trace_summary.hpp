// SPDX-License-Identifier: BSD-3-Clause
// Time use of the ranks in a trace, and detection of slow ranks (stragglers).
//   step = busy + exposed + bubble + rest
//   busy      in tasks, without waiting
//   exposed   waiting for a transfer, by communicator
//   bubble    waiting for a message from a neighbouring pipeline stage
//   rest      neither in a task nor waiting
//   hidden    transfer in progress without waiting (overlapped); not part of the sum
// A rank is slow if its work takes more than slow_factor times that of the median rank. Work is busy + rest of the
// step, or the forward or backward time of the median micro-batch per chunk, without waiting. The median is over the
// ranks of the pipeline stage, or over all ranks if the stage has one rank. If attention and SSM run on separate
// tensor-parallel ranks, the attention ranks (team 0) are compared with each other, and so are the SSM ranks (team 1).
// For an even number of ranks the lower median is used, so that the slower of two ranks is found.
#pragma once

#include "src/trace/trace_file.hpp"

namespace gyr {

inline constexpr double slow_factor = 1.2;

// Seconds per step, averaged over the traced steps.
struct RankSummary {
  Index rank = 0, stage = 0, team = 0;
  std::string name, host;
  double step = 0, busy = 0, bubble = 0, rest = 0, hidden = 0;
  std::map<std::string, double> exposed;      // exposed waiting time by communicator
  std::map<Index, double> forward, backward;  // forward and backward time of the median micro-batch, by chunk

  double work() const { return busy + rest; }
};

std::vector<RankSummary> summary_of(const std::vector<TraceFile>&);

// One quantity by which ranks are compared.
struct Comparison {
  std::string what;              // "forward", "backward", "work"; with several chunks: "forward 1"
  std::vector<double> seconds;   // time of each rank; 0: not measured
  std::vector<double> relative;  // ratio to the median of the compared ranks; 0: not measured
};
std::vector<Comparison> comparisons_of(const std::vector<RankSummary>&);

// Report for users: tables of times, a heat map of the ranks, and the slow ranks.
std::string trace_report(const std::vector<TraceFile>&);

}  // namespace gyr
