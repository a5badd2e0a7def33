// SPDX-License-Identifier: BSD-3-Clause
// Handles steps with a non-finite or too high loss: counts them and decides what to do. All ranks see the same loss and
// norm, so all decide the same.
#pragma once

#include <deque>

#include "src/config/run_config.hpp"

namespace gyr {

class Guard {
 public:
  static constexpr std::size_t window = 32;  // number of recent losses whose mean defines a spike

  explicit Guard(const TrainConfig& config) : config_(config) {}

  // Records the loss of an applied step, or of a step before this start of the run. `is_new`: no attempt has taken this
  // step before, so that it ends a series of bad steps.
  void applied(double loss, bool is_new);
  void remember(double loss) { applied(loss, false); }
  void forget() { losses_.clear(); }

  // Highest loss that is not a spike; infinity if train.spike is 0 or fewer than `window` losses are recorded.
  double loss_limit() const;
  // Message about a step whose loss is finite but above the limit.
  std::string spike(Index step, double loss) const;

  enum class Verdict { skip, rollback };
  // Counts a step that was not applied, and returns what to do about it. Exit::numeric with `why` if that ends the run.
  Verdict bad(bool finite, const std::string& why);

  Index skipped() const { return skipped_; }
  Index not_finite() const { return not_finite_; }

 private:
  TrainConfig config_;
  std::deque<double> losses_;  // losses of the last steps that were applied
  Index skipped_ = 0, not_finite_ = 0, in_a_row_ = 0;
};

}  // namespace gyr
