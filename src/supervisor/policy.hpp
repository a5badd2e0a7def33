// SPDX-License-Identifier: BSD-3-Clause
// Whether a run is started again, and on how many ranks: a function of its attempts so far.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// From one start of the run to its end.
struct Attempt {
  int number = 0, ranks = 0;
  Index from = 0, to = 0, reached = 0;  // newest checkpoint before and after; step under way at the end
  double seconds = 0;
  int code = 0;
  std::string state;    // done | stopped | lost | hung | stale | failed | died
  int rank = -1;        // that is to blame
  std::string host;     // of that rank
  int hosts = 1;        // that the ranks were on
  std::string culprit;  // in words
  std::vector<std::string> slow;

  bool lost_a_rank() const { return rank >= 0 && state != "failed"; }
  bool made_progress() const { return to > from; }
};

struct Policy {
  int ranks = 1;        // that the run is to have
  int model_ranks = 1;  // that each index of the data axis takes
  int spares = -1;      // ranks that can be lost and replaced, -1: any number
  Index max_restarts = 10;
  // The largest data axis up to so many ranks on which every batch splits, 0: there is none.
  std::function<int(int most)> data_axis;
};

struct Decision {
  bool go_on = false;
  int ranks = 0;    // of the next attempt
  std::string why;  // why it is given up, or runs on another number of ranks; empty where there is nothing to say
};

// Never again: a run that is done or was told to stop, an end that another start would come to as well (Exit::usage, data, missing, config),
// more than max_restarts, two attempts in a row without a new checkpoint.
// A lost rank is replaced while there are spares; the ranks that are then missing for good take their replicas with them. A host on which two
// attempts in a row lose a rank, the second before it has saved anything, costs the data axis too, where there are other hosts: for as long as
// that makes no progress. Any attempt that has saved something is followed by one on all ranks there are.
Decision decide(const std::vector<Attempt>&, const Policy&);

// Codes that another start would end with too.
bool is_final(int code);

}  // namespace gyr
