// SPDX-License-Identifier: BSD-3-Clause
// Which rank holds up a job that does not move, found from two readings of its heartbeats a few beats apart.
#pragma once

#include "src/watch/heartbeat.hpp"

namespace gyr {

struct Verdict {
  int rank = -1;     // -1: no single rank stands out
  std::string text;  // "rank 5 on node17 (pid 4711) is silent since ...: step 12, train, forward of micro-batch 3"
};

// In this order: a rank whose record has not been written between the looks (stopped, dead, or its node is gone); a rank that does not
// wait, of several the one that has not moved for the longest; where all wait for each other, the one with the oldest position.
Verdict judge(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after);

// Ranks whose record is the same in both, but for those that have ended.
std::vector<int> silent(const std::vector<Heartbeat>& before, const std::vector<Heartbeat>& after);

}  // namespace gyr
