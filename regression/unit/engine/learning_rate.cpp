// SPDX-License-Identifier: BSD-3-Clause
// Learning rate schedules: warm-up is linear up to the peak; decays fall monotonically from the peak to the minimum and
// then stay there.
#include "src/engine/config/learning_rate.hpp"

#include <cmath>

#include "regression/support/testing.hpp"

namespace gyr::learning_rate_suite {
namespace {

constexpr double lr = 3e-3, lowest = 2e-4;
constexpr std::int64_t warmup_steps = 20, steps = 400, decay = 100;

LearningRate schedule_of(const std::string& schedule, const std::string& shape = "linear") {
  return {schedule, lr, lowest, warmup_steps, steps, decay, shape};
}

const std::vector<LearningRate>& all() {
  static const std::vector<LearningRate> list{schedule_of("constant"),           schedule_of("linear"),           schedule_of("cosine"),
                                              schedule_of("inverse-sqrt"),       schedule_of("wsd", "linear"),    schedule_of("wsd", "cosine"),
                                              schedule_of("wsd", "exponential"), schedule_of("wsd", "minus-sqrt")};
  return list;
}

std::string name_of(const LearningRate& r) { return r.schedule + " " + r.wsd_shape; }

TEST(learning_rate, warms_up_linearly_to_the_peak) {
  for (LearningRate r : all()) {
    for (std::int64_t step = 1; step <= warmup_steps; ++step)
      EXPECT_NEAR(r.at(step), lr * double(step) / double(warmup_steps), 1e-18) << name_of(r) << step;
    r.warmup_steps = 0;
    EXPECT_GT(r.at(1), lr * 0.9) << name_of(r);
    EXPECT_LE(r.at(1), lr) << name_of(r);
  }
}

TEST(learning_rate, never_rises_after_warmup_nor_leaves_its_range) {
  for (const LearningRate& r : all())
    for (std::int64_t step = warmup_steps + 1; step <= 3 * steps; ++step) {
      EXPECT_LE(r.at(step), r.at(step - 1)) << name_of(r) << " " << step;
      EXPECT_GE(r.at(step), lowest) << name_of(r) << " " << step;
    }
}

TEST(learning_rate, reaches_its_minimum_and_stays_there) {
  for (const LearningRate& r : all()) {
    if (r.schedule == "constant" || r.schedule == "inverse-sqrt") continue;
    EXPECT_GT(r.at(steps - 1), lowest) << name_of(r);
    for (const std::int64_t step : {steps, steps + 1, 10 * steps}) EXPECT_NEAR(r.at(step), lowest, 1e-12) << name_of(r) << " " << step;
  }
  EXPECT_EQ(schedule_of("inverse-sqrt").at(1000000000), lowest);
  EXPECT_EQ(schedule_of("constant").at(1000000000), lr);
}

TEST(learning_rate, wsd_is_constant_until_its_decay) {
  for (const LearningRate& r : all())
    if (r.schedule == "wsd") {
      EXPECT_EQ(r.at(warmup_steps), lr);
      EXPECT_EQ(r.at(steps - decay), lr) << name_of(r);
      EXPECT_LT(r.at(steps - decay + 1), lr) << name_of(r);
    }
  LearningRate all_decay = schedule_of("wsd");
  all_decay.wsd_decay = 10 * steps;  // longer than the run: the decay begins right after the warm-up
  EXPECT_EQ(all_decay.at(warmup_steps), lr);
  EXPECT_LT(all_decay.at(warmup_steps + 1), lr);
}

// Fraction of (peak - minimum) that is left half-way through the decay: 1/2 for linear and cosine, 1 - sqrt(1/2) for
// minus-sqrt, 2 sqrt(1/2) - 1 for exponential.
TEST(learning_rate, matches_the_closed_form_half_way) {
  const auto left = [](const LearningRate& r, std::int64_t step) { return (r.at(step) - lowest) / (lr - lowest); };
  const std::int64_t middle = (warmup_steps + steps) / 2, late = steps - decay / 2;
  EXPECT_NEAR(left(schedule_of("linear"), middle), 0.5, 1e-12);
  EXPECT_NEAR(left(schedule_of("cosine"), middle), 0.5, 1e-12);
  EXPECT_NEAR(left(schedule_of("cosine"), warmup_steps + (steps - warmup_steps) / 4), (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(left(schedule_of("wsd", "linear"), late), 0.5, 1e-12);
  EXPECT_NEAR(left(schedule_of("wsd", "cosine"), late), 0.5, 1e-12);
  EXPECT_NEAR(left(schedule_of("wsd", "exponential"), late), std::sqrt(2.0) - 1, 1e-12);
  EXPECT_NEAR(left(schedule_of("wsd", "minus-sqrt"), late), 1 - std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(schedule_of("inverse-sqrt").at(4 * warmup_steps), lr / 2, 1e-15);
}

}  // namespace
}  // namespace gyr::learning_rate_suite
