// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/guard.hpp"

#include <limits>
#include <numeric>

namespace gyr {

void Guard::applied(double loss, bool is_new) {
  losses_.push_back(loss);
  if (losses_.size() > window) losses_.pop_front();
  if (is_new) in_a_row_ = 0;
}

double Guard::loss_limit() const {
  if (config_.spike == 0 || losses_.size() < window) return std::numeric_limits<double>::infinity();
  return config_.spike * std::accumulate(losses_.begin(), losses_.end(), 0.0) / double(window);
}

std::string Guard::spike(Index step, double loss) const {
  return fmt::format("step {}: loss {:.4f} is above {:.4f}, {} times the mean of the last {} (train.spike)", step, loss, loss_limit(), config_.spike,
                     window);
}

Guard::Verdict Guard::bad(bool finite, const std::string& why) {
  ++skipped_, ++in_a_row_;
  if (!finite) ++not_finite_;
  require(config_.non_finite != NonFinite::stop, Exit::numeric, "{}", why);
  require(in_a_row_ <= config_.max_skips, Exit::numeric, "{}. It is the {}th skipped batch in a row, more than train.max_skips", why, in_a_row_);
  return config_.non_finite == NonFinite::rollback ? Verdict::rollback : Verdict::skip;
}

}  // namespace gyr
