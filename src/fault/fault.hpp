// SPDX-License-Identifier: BSD-3-Clause
// Injected faults, to test how a run survives failures: deck keys fault.*.
#pragma once

#include <chrono>

#include "src/engine/engine.hpp"
#include "src/fault/fault_settings.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

// Strikes on the rank and in the step that the settings name.
template <class T>
class Fault {
 public:
  // Exit::config where it is to strike in this attempt, on a rank that there is not.
  Fault(const FaultSettings&, const Identity&, Engine<T>&, const Beacon&);
  // To be called before every step.
  void strike(Index step);

 private:
  void delay();
  void spoil(Device&, Tensor1<Acc<T>> gradients);
  void flip_weight(const Parameter&);
  template <class S>
  void flip_bit(Tensor1<S>, Index at);
  void scale(const Parameter&);
  const Parameter& largest() const;
  template <class F>
  void with_values(const Parameter&, F&&);

  FaultSettings settings_;
  bool mine_ = false;
  Engine<T>& engine_;
  const Beacon& beacon_;
  bool spoil_ = false;  // the gradients of this step
  std::chrono::steady_clock::time_point last_;
  double last_waited_ = 0;
};

}  // namespace gyr
