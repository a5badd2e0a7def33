// SPDX-License-Identifier: BSD-3-Clause
// Useful part of the time of a training with failures: the closed form equals a simulation, and the best interval is the best.
#include "src/planner/predict/failures.hpp"

#include <cmath>
#include <random>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::failures_suite {
namespace {

// Attempts one after another: an exponential time until the failure, of which complete saves keep their work.
double simulated_part(double rate, double restart, const Saves& s, int attempts, std::mt19937_64& random) {
  std::exponential_distribution<double> until_failure(rate);
  double useful = 0, all = 0;
  for (int i = 0; i < attempts; ++i) {
    const double runs = until_failure(random);
    const double complete = std::floor((runs - s.writes) / (s.every + s.blocks));  // save k is complete at k (S + B) + W
    useful += std::max(0.0, complete) * s.every;
    all += runs + restart;
  }
  return useful / all;
}

struct DrawnFailures {
  double rate, restart;
  Saves saves;
};

DrawnFailures draw_failures(Dice& dice) {
  const double rate = 1 / dice.real(3e3, 3e5);
  return {rate, dice.real(0, 2000), {dice.real(0.02, 0.6) / rate, dice.real(0, 200), dice.real(0, 500)}};
}

TEST(failures, useful_part_equals_simulated_attempts) {
  Dice dice(seed_of_run());
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    const DrawnFailures d = draw_failures(dice);
    const double part = useful_part(d.rate, d.restart, d.saves);
    EXPECT_NEAR(simulated_part(d.rate, d.restart, d.saves, 100'000, random), part, 0.015 * part) << i;
  }
  EXPECT_EQ(useful_part(0, 600, {90, 10, 5}), 0.9) << "without failures, only saves cost time";
}

TEST(failures, best_interval_has_the_largest_useful_part) {
  Dice dice(seed_of_run() + 1);
  for (int i = 0; i < 100; ++i) {
    DrawnFailures d = draw_failures(dice);
    const double best = best_interval(d.rate, d.restart, d.saves);
    const auto part = [&](double every) {
      d.saves.every = every;
      return useful_part(d.rate, d.restart, d.saves);
    };
    EXPECT_GE(best, std::max(d.saves.blocks, d.saves.writes) * (1 - 1e-9));
    for (const double factor : {1.02, 1.5, 5.0}) EXPECT_GE(part(best), part(best * factor) - 1e-9) << i;
    if (best > 1.01 * std::max({1.0, d.saves.blocks, d.saves.writes})) {
      for (const double factor : {0.99, 0.7}) EXPECT_GE(part(best), part(std::max(1.0, best * factor)) - 1e-9) << i;
    }
  }
}

// Young 1974: sqrt(2 B / f) for saves that are short beside the time between failures.
TEST(failures, best_interval_of_short_saves_follows_young) {
  const double rate = 1e-6;
  EXPECT_NEAR(best_interval(rate, 0, {0, 10, 0}), std::sqrt(2 * 10 / rate), 0.01 * std::sqrt(2 * 10 / rate));
}

}  // namespace
}  // namespace gyr::testing::failures_suite
