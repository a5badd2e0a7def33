// SPDX-License-Identifier: BSD-3-Clause
// Fault to inject into a run, with its rank, step and attempt: deck keys fault.*.
#pragma once

#include <string>

#include "modules/settings/settings.hpp"

namespace gyr {

enum class FaultKind { none, kill, stop, hang, leave, slow, nan, bitflip, gradflip, scale };

struct FaultSettings {
  FaultKind kind = FaultKind::none;
  double amount = 0;  // slow: slowdown factor; leave: exit code; bitflip, gradflip: index of the bit; scale: factor of all weights of this rank
  std::string text;   // fault.kind as written in the deck
  int rank = 0, attempt = 0;  // attempt -1: every attempt
  Index step = 1;

  bool any() const { return kind != FaultKind::none; }
};

// Parses "kill", "stop", "hang", "exit:3", "slow:2.0", "nan", "bitflip:30", "gradflip:30" or "scale:100"; "" is no
// fault. Exit::config otherwise. nan and gradflip corrupt this rank's gradients after their reduction over
// data-parallel ranks, as a bad receive buffer would.
FaultSettings parse_fault(const std::string& kind);
FaultSettings read_fault(Section&);
// Log line: "FAULT INJECTION (fault.kind, for tests): rank 3 gets kill at step 7 of attempt 0".
std::string describe(const FaultSettings&);

}  // namespace gyr
