// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/clock.hpp"

#include <algorithm>
#include <limits>

namespace gyr {

namespace {
constexpr int meetings = 12;
}

ClockDifference clock_difference(std::span<const ClockSync> mine, std::span<const ClockSync> first) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    least = std::max(least, mine[i].came - first[i].left);
    most = std::min(most, mine[i].left - first[i].came);
  }
  return {(least + most) / 2, std::max(0.0, most - least) / 2};
}

AlignedClock align_clocks(Communicator& world) {
  AlignedClock clock;
  clock.origin = moment_now();
  if (world.size() == 1) return clock;
  std::vector<double> mine;
  for (int i = 0; i < meetings; ++i) {
    mine.push_back(double(moment_now() - clock.origin));
    world.barrier();
    mine.push_back(double(moment_now() - clock.origin));
  }
  const std::vector<double> all = world.gather(mine);
  std::vector<ClockSync> here, first;
  for (int i = 0; i < meetings; ++i) {
    here.push_back({mine[2 * i], mine[2 * i + 1]});
    first.push_back({all[2 * i], all[2 * i + 1]});
  }
  if (world.rank() > 0) clock.difference = clock_difference(here, first);
  return clock;
}

}  // namespace gyr
