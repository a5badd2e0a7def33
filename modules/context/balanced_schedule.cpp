// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/balanced_schedule.hpp"

namespace gyr {

std::vector<BalancedStep> balanced_schedule(int ranks, int rank) {
  std::vector<BalancedStep> steps{{rank, rank}};
  for (int t = 1; 2 * t <= ranks; ++t) {
    const int previous = (rank - t + ranks) % ranks, next = (rank + t) % ranks;
    const bool some_help = 2 * t != ranks;
    BalancedStep s;
    if (rank >= t) s.queries = rank, s.keys = s.from = previous, s.received = Moved::keys;
    else if (some_help) s.keys = rank, s.queries = s.from = previous, s.received = Moved::queries;
    if (rank + t < ranks) s.to = next, s.sent = Moved::keys;
    else if (some_help) s.to = next, s.sent = Moved::queries;
    steps.push_back(s);
  }
  return steps;
}

}  // namespace gyr
