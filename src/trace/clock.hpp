// SPDX-License-Identifier: BSD-3-Clause
// How far a rank's steady clock is ahead of the first rank's. Clocks of two machines begin anywhere, so ranks meet a few times and note when each
// comes and when it leaves. Nobody leaves before all have come: of any two ranks one has come before the other has left, both ways round. That
// bounds the difference of their clocks from both sides, by the tightest of the meetings, and the middle is taken. The clocks are taken to run
// equally fast for the length of a step.
#pragma once

#include <span>

#include "kernels/comm/communicator.hpp"

namespace gyr {

// When a rank came to a meeting and left it, in nanoseconds from a moment of its own.
struct ClockSync {
  double came, left;
};

struct ClockDifference {
  double ahead = 0;        // of the first rank's clock, in nanoseconds
  double uncertainty = 0;  // at most so far from the truth
};

// From the same meetings as two ranks have noted them.
ClockDifference clock_difference(std::span<const ClockSync> mine, std::span<const ClockSync> first);

// A rank's clock in the first rank's time.
struct AlignedClock {
  Moment origin = 0;  // of this rank's clock
  ClockDifference difference;

  // Nanoseconds since the first rank's origin.
  double time(Moment m) const { return double(m - origin) - difference.ahead; }
};

// Collective; takes a few small collectives.
AlignedClock align_clocks(Communicator& world);

}  // namespace gyr
