// SPDX-License-Identifier: BSD-3-Clause
// What is done about steps whose numbers are bad: counted, and decided the same on every rank, since all see the same loss and norm.
#pragma once

#include <deque>

#include "src/config/run_config.hpp"

namespace gyr {

class Guard {
 public:
  static constexpr std::size_t window = 32;  // losses that a spike is measured against

  explicit Guard(const TrainConfig& config) : config_(config) {}

  // The loss of a step that was applied, or of one before this start of the run; a step no run has taken yet ends a row of bad ones.
  void applied(double loss, bool is_new);
  void remember(double loss) { applied(loss, false); }
  void forget() { losses_.clear(); }

  // The highest loss that is no spike: known once there are enough losses to compare with.
  double loss_limit() const;
  // In words, what is bad about a step whose numbers are finite.
  std::string spike(Index step, double loss) const;

  enum class Verdict { skip, rollback };
  // About a step that was not applied: counts it. Exit::numeric saying `why` where that ends the run.
  Verdict bad(bool finite, const std::string& why);

  Index skipped() const { return skipped_; }
  Index not_finite() const { return not_finite_; }

 private:
  TrainConfig config_;
  std::deque<double> losses_;  // of the last steps that were applied
  Index skipped_ = 0, not_finite_ = 0, in_a_row_ = 0;
};

}  // namespace gyr
