// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/guard.hpp"

#include <cmath>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/train/recent_metrics.hpp"

namespace gyr::testing::guard_suite {
namespace {

TrainConfig config_of(NonFinite policy, double spike = 0, Index max_skips = 3) {
  TrainConfig c{};
  c.non_finite = policy, c.spike = spike, c.max_skips = max_skips;
  return c;
}

TEST(guard, spike_limit_needs_enough_recent_losses) {
  Guard guard(config_of(NonFinite::skip, 2));
  for (std::size_t i = 1; i < Guard::window; ++i) {
    guard.applied(100, true);
    EXPECT_TRUE(std::isinf(guard.loss_limit()));
  }
  for (std::size_t i = 0; i < Guard::window; ++i) guard.applied(double(i), true);  // the oldest losses are forgotten
  EXPECT_DOUBLE_EQ(guard.loss_limit(), 2 * (Guard::window - 1) / 2.0);
  guard.forget();
  EXPECT_TRUE(std::isinf(guard.loss_limit()));
}

TEST(guard, spike_detection_is_off_without_factor) {
  Guard guard(config_of(NonFinite::skip));
  for (std::size_t i = 0; i < Guard::window; ++i) guard.applied(1, true);
  EXPECT_TRUE(std::isinf(guard.loss_limit()));
}

TEST(guard, skipped_and_nonfinite_steps_are_counted) {
  Guard guard(config_of(NonFinite::rollback));
  EXPECT_EQ(guard.bad(true, "spike"), Guard::Verdict::rollback);
  EXPECT_EQ(guard.bad(false, "nan"), Guard::Verdict::rollback);
  EXPECT_EQ(guard.skipped(), 2);
  EXPECT_EQ(guard.not_finite(), 1);
}

TEST(guard, stop_policy_ends_the_run) {
  Guard guard(config_of(NonFinite::stop));
  const Error error = error_of([&] { guard.bad(false, "step 7: bad numbers"); });
  EXPECT_EQ(error.code, Exit::numeric);
  EXPECT_STREQ(error.what(), "step 7: bad numbers");
}

// Steps that are repeated after a rollback do not reset the count of consecutive bad batches. Otherwise a run could
// roll back forever.
TEST(guard, too_many_consecutive_bad_batches_end_run) {
  Guard guard(config_of(NonFinite::rollback, 0, 2));
  guard.bad(false, "");
  guard.applied(1, true);
  guard.bad(false, "");
  guard.applied(1, false);
  guard.bad(false, "");
  EXPECT_EQ(error_of([&] { guard.bad(false, ""); }).code, Exit::numeric);
}

// Losses that a resumed run reads from metrics.jsonl: of applied steps only, the last record of each, up to the step at
// which it resumes.
TEST(guard, resumed_run_remembers_applied_losses_only) {
  const Folder folder;
  const auto file = folder.write("metrics.jsonl", R"({"kind":"step","step":1,"loss":1.5}
{"kind":"step","step":2,"loss":2.5}
{"kind":"skip","step":3,"to":3}
{"kind":"step","step":3,"loss":90}
{"kind":"step","step":4,"loss":70}
{"kind":"step","step":5,"loss":80}
{"kind":"step","step":4,"loss":4.5}
{"kind":"validation","step":4,"loss":60}
{"kind":"step","step":4,"lo)");
  EXPECT_EQ(recent_metrics(file, 4, 10).losses, (std::vector<double>{1.5, 2.5, 4.5}));
  EXPECT_EQ(recent_metrics(file, 4, 2).losses, (std::vector<double>{2.5, 4.5})) << "only the newest losses";
  EXPECT_EQ(recent_metrics(file, 2, 10).losses, (std::vector<double>{1.5, 2.5}));
  EXPECT_TRUE(recent_metrics(file, 4, 10).validated);
  EXPECT_FALSE(recent_metrics(file, 2, 10).validated);
  EXPECT_TRUE(recent_metrics(folder / "none", 4, 10).losses.empty());
}

}  // namespace
}  // namespace gyr::testing::guard_suite
