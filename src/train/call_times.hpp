// SPDX-License-Identifier: BSD-3-Clause
// Seconds of the calls of an iteration of policy training on the first rank, as timers measure them or as a prediction has them.
//   generate   answers; if other ranks write them ahead (rl.staleness: 1), the wait for them
//   score      rewards, log-probabilities and values
//   train      optimizer steps of all trained models
//   move       of the weights to the ranks that generate
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "src/report/timers.hpp"

namespace gyr {

struct CallSeconds {
  double generate = 0, score = 0, train = 0, move = 0;

  std::array<std::pair<const char*, double>, 4> named() const {
    return {{{"generate", generate}, {"score", score}, {"train", train}, {"move", move}}};
  }
};

class CallTimes {
 public:
  explicit CallTimes(const Timers& timers) : timers_(timers) {}

  // Seconds of the iteration before, when the next one begins within a step; empty if it was not measured from its begin.
  std::optional<CallSeconds> begin() {
    const double steps = timers_.seconds("step");
    std::optional<CallSeconds> before = std::exchange(calls_, {});
    if (before) before->train = steps - steps_ - before->generate - before->score - before->move;
    steps_ = steps, generated_ = timers_.seconds("generate"), moved_ = timers_.seconds("move weights");
    return before;
  }

  // `seconds`: since begin(), until the answers are scored.
  void scored(double seconds) {
    CallSeconds& calls = calls_.emplace();
    calls.generate = timers_.seconds("generate") - generated_, calls.move = timers_.seconds("move weights") - moved_;
    calls.score = seconds - calls.generate - calls.move;
  }

 private:
  const Timers& timers_;
  std::optional<CallSeconds> calls_;  // of the present iteration, but for its training
  double steps_ = 0, generated_ = 0, moved_ = 0;
};

}  // namespace gyr
