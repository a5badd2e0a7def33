// SPDX-License-Identifier: BSD-3-Clause
// Injected faults, to test how a run survives failures: deck keys fault.*.
#pragma once

#include <chrono>

#include "src/engine/model/model_state.hpp"
#include "src/fault/fault_settings.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

// Strikes on the rank and in the step that the settings name.
class Fault {
 public:
  // Exit::config where it is to strike in this attempt, on a rank that there is not.
  Fault(const FaultSettings&, const Identity&, ModelState&, const ProgressRecord&);
  // To be called before every step.
  void strike(Index step);

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
  bool spoil_ = false;  // the gradients of this step
  std::chrono::steady_clock::time_point last_;
  double last_waited_ = 0;
};

}  // namespace gyr
