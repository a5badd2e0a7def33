// SPDX-License-Identifier: BSD-3-Clause
// Finds the rank that blocks a hanging job, from two readings of the heartbeats a few beats apart.
#pragma once

#include "src/watch/heartbeat.hpp"

namespace gyr {

struct Verdict {
  int rank = -1;     // rank at fault; -1: no rank has written a heartbeat
  std::string text;  // "rank 5 on node17 (pid 4711) has written no heartbeat ...; last seen at: step 12, train, forward of micro-batch 3"
};

// Rank at fault, in this order of precedence: a rank that wrote no heartbeat between the readings (stopped, dead, or
// its node is down), and of several the one with the oldest record; a rank that does not wait, and of several the one
// without progress for the longest time; if all ranks wait for each other, the one with the lowest step, then the
// lowest operation number.
Verdict judge(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after);

// Ranks whose record is the same in both readings, except those that have ended.
std::vector<int> silent(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after);

}  // namespace gyr
