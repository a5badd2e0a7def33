// SPDX-License-Identifier: BSD-3-Clause
// Difference between a rank's steady clock and the first rank's. Clocks of different machines have different origins.
// All ranks therefore pass several barriers and record when they enter and leave each. No rank leaves a barrier before
// all have entered it. For two ranks, this bounds the clock difference from both sides. The tightest bounds of all
// barriers are taken, and the estimate is their middle. Clocks are assumed to run equally fast for the length of a
// step.
#pragma once

#include <span>

#include "kernels/comm/communicator.hpp"

namespace gyr {

// Times at which a rank entered and left a barrier, in ns from an origin of its own.
struct ClockSync {
  double came, left;
};

struct ClockDifference {
  double ahead = 0;        // ns by which this rank's clock is ahead of the first rank's
  double uncertainty = 0;  // maximum error of `ahead`, in ns
};

// Clock difference from the times of the same barriers on this rank and on the first rank.
ClockDifference clock_difference(std::span<const ClockSync> mine, std::span<const ClockSync> first);

// Converts times of this rank's clock to the first rank's time.
struct AlignedClock {
  Moment origin = 0;  // origin of this rank's clock
  ClockDifference difference;

  // Nanoseconds since the first rank's origin.
  double time(Moment m) const { return double(m - origin) - difference.ahead; }
};

// Measures the clock difference with a few small collectives. Collective.
AlignedClock align_clocks(Communicator& world);

}  // namespace gyr
