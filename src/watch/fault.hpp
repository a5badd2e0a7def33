// SPDX-License-Identifier: BSD-3-Clause
// Injected faults, to test how a run survives failures: deck keys fault.*.
#pragma once

#include <string>

#include "src/engine.hpp"

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
// "rank 3 gets kill at step 7 of attempt 0 (fault.kind)"
std::string describe(const FaultSettings&);

// Strikes on the rank and in the step that the settings name.
template <class T>
class Fault {
 public:
  Fault(const FaultSettings&, int rank, int attempt, Engine<T>&, const Beacon&);
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
  bool mine_;
  Engine<T>& engine_;
  const Beacon& beacon_;
  bool spoil_ = false;  // the gradients of this step
  std::chrono::steady_clock::time_point last_;
  double last_waited_ = 0;
};

}  // namespace gyr
