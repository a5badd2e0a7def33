// SPDX-License-Identifier: BSD-3-Clause
// Injected faults of a process, which need no model: it is killed, stopped, ends or hangs.
#pragma once

#include "src/fault/fault_settings.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

// True if the fault is for this rank and attempt. Exit::config if it is for this attempt, and its rank does not exist.
bool is_for(const FaultSettings&, const Identity&);
// Injects a fault of these kinds; returns if it is of another one, and after a stopped process continues.
void break_process(const FaultSettings&);

// Faults of a rank that has no training engine.
class ProcessFault {
 public:
  // Exit::config if a fault of this rank is of another kind.
  ProcessFault(const FaultSettings&, const Identity&);
  // Call this before work for step `step`; injects the fault once, at its step or the first one after it.
  void inject(Index step);

 private:
  const FaultSettings settings_;
  bool due_;
};

}  // namespace gyr
