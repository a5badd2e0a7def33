// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/soft_cap.hpp"

#include <cmath>
#include <limits>

#include "regression/support/values.hpp"

namespace gyr::testing::soft_cap_suite {

namespace {

// Rows and columns that are multiples of the vector length 8, and others.
constexpr std::pair<Index, Index> shapes[] = {{1, 1}, {3, 17}, {5, 64}, {300, 8}};

template <class A>
void expect_capped(double tolerance) {
  for (const auto& [rows, columns] : shapes)
    for (const double cap : {0.5, 3.0, 30.0}) {
      Values x = random_values(rows * columns, 3);
      for (double& v : x) v *= 6 * cap;
      x = rounded<A>(x);
      Device dev(false, 1 << 20);
      Block<A> y(rows, columns, x);
      soft_cap<A>(dev, cap, y.tensor());
      const Values capped = y.values();
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(capped[i], cap * std::tanh(x[i] / cap), tolerance * cap);
        EXPECT_NEAR(SoftCap<double>(cap).slope(capped[i]), 1 - std::pow(std::tanh(x[i] / cap), 2), 4 * tolerance);
      }
    }
}

}  // namespace

TEST(soft_cap, soft_cap_matches_tanh_and_its_derivative) {
  expect_capped<double>(1e-15);
  expect_capped<float>(2e-7);
}
TEST(soft_cap, zero_cap_is_the_identity) {
  for (const double x : {0.0, 1e9, -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(SoftCap<double>(0).at(x), x);
    EXPECT_EQ(SoftCap<double>(0).slope(x), 1);
  }
}

TEST(soft_cap, float_tanh_is_accurate_and_odd) {
  for (const float x : {0.0f, 1e-30f, -1e-8f, 3e-4f, -0.1f, 0.6249f, 0.6251f, -9.0f, 50.0f, -1e30f}) {
    EXPECT_NEAR(fast_tanh(x), std::tanh(double(x)), 1.2e-7 * std::abs(std::tanh(double(x)))) << x;
    EXPECT_EQ(fast_tanh(-x), -fast_tanh(x)) << x;
  }
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace gyr::testing::soft_cap_suite
