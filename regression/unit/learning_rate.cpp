// SPDX-License-Identifier: BSD-3-Clause
// Laws of learning rates: warm-up is a straight line to the peak, decays fall without a rise from peak to floor, and
// stay there.
#include "src/config/learning_rate.hpp"

#include <cmath>

#include "regression/testing.hpp"

namespace gyr {
namespace {

constexpr double peak = 3e-3, lowest = 2e-4;
constexpr std::int64_t warmup = 20, steps = 400, decay = 100;

LearningRate rate(const std::string& schedule, const std::string& shape = "linear") {
  return {schedule, peak, lowest, warmup, steps, decay, shape};
}

const std::vector<LearningRate>& all() {
  static const std::vector<LearningRate> list{
      rate("constant"),           rate("linear"),           rate("cosine"),
      rate("inverse-sqrt"),       rate("wsd", "linear"),    rate("wsd", "cosine"),
      rate("wsd", "exponential"), rate("wsd", "minus-sqrt")};
  return list;
}

std::string name_of(const LearningRate& r) { return r.schedule + " " + r.decay_shape; }

TEST(learning_rate, warms_up_in_a_straight_line_to_the_peak) {
  for (LearningRate r : all()) {
    for (std::int64_t step = 1; step <= warmup; ++step)
      EXPECT_NEAR(r.at(step), peak * double(step) / double(warmup), 1e-18) << name_of(r) << step;
    r.warmup = 0;
    EXPECT_GT(r.at(1), peak * 0.9) << name_of(r);
    EXPECT_LE(r.at(1), peak) << name_of(r);
  }
}

TEST(learning_rate, never_rises_after_the_warm_up_nor_leaves_its_range) {
  for (const LearningRate& r : all())
    for (std::int64_t step = warmup + 1; step <= 3 * steps; ++step) {
      EXPECT_LE(r.at(step), r.at(step - 1)) << name_of(r) << " " << step;
      EXPECT_GE(r.at(step), lowest) << name_of(r) << " " << step;
    }
}

TEST(learning_rate, ends_at_the_floor_and_stays) {
  for (const LearningRate& r : all()) {
    if (r.schedule == "constant" || r.schedule == "inverse-sqrt") continue;
    EXPECT_GT(r.at(steps - 1), lowest) << name_of(r);
    for (const std::int64_t step : {steps, steps + 1, 10 * steps})
      EXPECT_NEAR(r.at(step), lowest, 1e-12) << name_of(r) << " " << step;
  }
  EXPECT_EQ(rate("inverse-sqrt").at(1000000000), lowest);
  EXPECT_EQ(rate("constant").at(1000000000), peak);
}

TEST(learning_rate, of_wsd_is_stable_until_its_decay) {
  for (const LearningRate& r : all())
    if (r.schedule == "wsd") {
      EXPECT_EQ(r.at(warmup), peak);
      EXPECT_EQ(r.at(steps - decay), peak) << name_of(r);
      EXPECT_LT(r.at(steps - decay + 1), peak) << name_of(r);
    }
  LearningRate all_decay = rate("wsd");
  all_decay.decay = 10 * steps;  // longer than the run: begins after the warm-up
  EXPECT_EQ(all_decay.at(warmup), peak);
  EXPECT_LT(all_decay.at(warmup + 1), peak);
}

// Half-way: linear and cosine are half down, minus-sqrt is down by the root of a half, exponential has left 2
// (1/2)^(1/2) - 1.
TEST(learning_rate, is_the_closed_form_half_way) {
  const auto left = [](const LearningRate& r, std::int64_t step) { return (r.at(step) - lowest) / (peak - lowest); };
  const std::int64_t middle = (warmup + steps) / 2, late = steps - decay / 2;
  EXPECT_NEAR(left(rate("linear"), middle), 0.5, 1e-12);
  EXPECT_NEAR(left(rate("cosine"), middle), 0.5, 1e-12);
  EXPECT_NEAR(left(rate("cosine"), warmup + (steps - warmup) / 4), (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(left(rate("wsd", "linear"), late), 0.5, 1e-12);
  EXPECT_NEAR(left(rate("wsd", "cosine"), late), 0.5, 1e-12);
  EXPECT_NEAR(left(rate("wsd", "exponential"), late), std::sqrt(2.0) - 1, 1e-12);
  EXPECT_NEAR(left(rate("wsd", "minus-sqrt"), late), 1 - std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(rate("inverse-sqrt").at(4 * warmup), peak / 2, 1e-15);
}

}  // namespace
}  // namespace gyr
