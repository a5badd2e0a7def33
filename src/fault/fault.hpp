// SPDX-License-Identifier: BSD-3-Clause
// Injected faults, to test how a run survives failures: deck keys fault.*.
#pragma once

#include <chrono>

#include "src/engine/model/model_state.hpp"
#include "src/fault/fault_settings.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

// Injects the fault on the rank and at the step that the settings name.
class Fault {
 public:
  // Exit::config if the fault is for this attempt and its rank does not exist.
  Fault(const FaultSettings&, const Identity&, ModelState&, const ProgressRecord&);
  // Call this before every step.
  void inject_fault(Index step);

 private:
  void delay();
  void spoil(const std::vector<AnyTensor>& gradients);
  void flip_bit(const AnyTensor&, Index at);
  void scale(const AnyTensor&);
  AnyTensor largest() const;

  FaultSettings settings_;
  bool mine_ = false;
  ModelState& state_;
  const ProgressRecord& progress_record_;
  bool spoil_ = false;  // true: corrupt the gradients of this step
  std::chrono::steady_clock::time_point last_;
  double last_waited_ = 0;
};

}  // namespace gyr
