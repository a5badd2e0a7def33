// SPDX-License-Identifier: BSD-3-Clause
// Which fault a run is to meet, and when: deck keys fault.*.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

enum class FaultKind { none, kill, stop, hang, leave, slow, nan, bitflip, gradflip, scale };

struct FaultSettings {
  FaultKind kind = FaultKind::none;
  double amount = 0;  // slow: times as slow; leave: exit code; bitflip, gradflip: which bit of the number; scale: factor of all this rank's weights
  std::string text;   // as in the deck
  int rank = 0, attempt = 0;  // attempt -1: every one
  Index step = 1;

  bool any() const { return kind != FaultKind::none; }
};

// "kill", "stop", "hang", "exit:3", "slow:2.0", "nan", "bitflip:30", "gradflip:30", "scale:100"; "" none. Exit::config otherwise. nan and
// gradflip spoil this rank's gradients once they are summed over the data axis, as a bad receive buffer would.
FaultSettings parse_fault(const std::string& kind);
FaultSettings read_fault(Section&);
// "rank 3 gets kill at step 7 of attempt 0 (fault.kind)"
std::string describe(const FaultSettings&);

}  // namespace gyr
