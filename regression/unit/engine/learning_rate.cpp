// SPDX-License-Identifier: BSD-3-Clause
// Learning rate schedules: warm-up is linear up to the peak; decays fall monotonically from the peak to the minimum and
// then stay there.
#include "src/engine/config/learning_rate.hpp"

#include <array>
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

TEST(learning_rate, warm_up_begins_at_its_own_rate) {
  for (LearningRate r : all()) {
    r.warmup_lr = 1e-3;
    EXPECT_NEAR(r.at(1), 1e-3 + (lr - 1e-3) / double(warmup_steps), 1e-17) << name_of(r);
    EXPECT_EQ(r.at(warmup_steps), lr) << name_of(r);
  }
}

// Values of Megatron's formulas.
TEST(learning_rate, equals_published_values) {
  const auto of = [](const std::string& schedule, const std::string& shape = "linear") {
    return LearningRate{schedule, 1e-3, 1e-4, 100, 1000, 200, shape};
  };
  const std::int64_t at[] = {50, 100, 101, 550, 999, 1000, 1500};
  const double cosine[] = {5e-4, 1e-3, 0.000999997258446006, 0.00055, 0.000100002741553994, 1e-4, 1e-4};
  const double root[] = {5e-4, 1e-3, 0.000995037190209989, 0.000426401432711221, 0.000316385998584166, 0.000316227766016838, 0.000258198889747161};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_NEAR(of("cosine").at(at[i]), cosine[i], 1e-17);
    EXPECT_NEAR(of("inverse-sqrt").at(at[i]), root[i], 1e-17);
  }
  const std::pair<const char*, std::array<double, 3>> tails[] = {{"linear", {0.0009955, 0.00055, 0.0001045}},
                                                                 {"cosine", {0.000999944484616747, 0.00055, 0.000100055515383253}},
                                                                 {"exponential", {0.000993772473090162, 0.000472792206135786, 0.000103124573658553}},
                                                                 {"minus-sqrt", {0.000936360389693211, 0.000363603896932107, 0.0001022528195533}}};
  for (const auto& [shape, values] : tails)
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(of("wsd", shape).at(std::array{801, 900, 999}[i]), values[i], 1e-17) << shape;
}

// min(lr, a T^b), warm-up towards its value at the end of the warm-up, and the decay of wsd from where it then is.
TEST(learning_rate, power_law_is_capped_and_ends_in_decay) {
  LearningRate r{"power", 1e-3, 1e-5, 1000, 1000000, 200000, "linear"};
  r.power_a = 0.5, r.power_b = -0.5, r.unit = ScheduleUnit::tokens;
  EXPECT_EQ(r.at(1000), 1e-3);
  EXPECT_NEAR(r.at(500), 5e-4, 1e-18);
  EXPECT_EQ(r.at(249000), 1e-3) << "a T^b is above lr until 250000 tokens";
  EXPECT_NEAR(r.at(640000), 0.5 / 800, 1e-17);
  const double before = 0.5 / std::sqrt(800000);
  EXPECT_NEAR(r.at(800000), before, 1e-17);
  EXPECT_NEAR(r.at(900000), 1e-5 + (before - 1e-5) / 2, 1e-17);
  EXPECT_NEAR(r.at(1000000), 1e-5, 1e-17);
  EXPECT_NEAR(r.at(2000000), 1e-5, 1e-17);
}

TEST(learning_rate, weight_decay_ramps_to_its_end) {
  for (const char* schedule : {"linear", "cosine"}) {
    const WeightDecay w{schedule, 0.02, 0.1, 400};
    EXPECT_GE(w.at(1), 0.02);
    EXPECT_NEAR(w.at(200), 0.06, 1e-15);
    for (std::int64_t step = 2; step <= 400; ++step) EXPECT_GE(w.at(step), w.at(step - 1)) << schedule << " " << step;
    EXPECT_EQ(w.at(400), 0.1);
    EXPECT_EQ(w.at(4000), 0.1);
  }
  EXPECT_NEAR((WeightDecay{"cosine", 0, 1, 400}.at(100)), (1 - std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_EQ((WeightDecay{"constant", 0.5, 0.1, 400}.at(1)), 0.1);
}

}  // namespace
}  // namespace gyr::learning_rate_suite
