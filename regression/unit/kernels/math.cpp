// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/math.hpp"

#include <limits>

#include "regression/support/testing.hpp"

namespace gyr::testing::math_suite {

namespace {
constexpr float inf = std::numeric_limits<float>::infinity();

// Error of y in units in the last place (ULP) of the exact value.
double ulps(float y, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(double(y) - exact) / unit;
}
}  // namespace

TEST(math, fp32_exp_is_within_two_ulp) {
  double worst = 0;
  for (int i = 0; i < 4000000; ++i) {
    const float x = float(-87.3365402 + i * (88.7228317 + 87.3365402) / 3999999);
    if (x < -87.3365402f || x > 88.7228317f) continue;
    worst = std::max(worst, ulps(fast_exp(x), std::exp(double(x))));
  }
  for (float x = 1e-30f; x < 80; x *= 1.001f)
    for (const float s : {x, -x}) worst = std::max(worst, ulps(fast_exp(s), std::exp(double(s))));
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0.5);  // an exact result would mean that a library function was tested in place of the kernels' own
}

TEST(math, fp32_exp_handles_underflow_overflow_and_nan) {
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-0.0f), 1.0f);
  for (const float x : {-87.34f, -100.0f, -104.0f, -1e4f, -3e38f, -inf}) EXPECT_EQ(fast_exp(x), 0.0f) << x;
  for (const float x : {88.73f, 89.0f, 1e4f, 3e38f, inf}) EXPECT_EQ(fast_exp(x), inf) << x;
  EXPECT_GE(fast_exp(-87.3365402f), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(fast_exp(88.7228317f)));
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<double>::quiet_NaN())));
}

TEST(math, sigmoid_is_monotone_bounded_and_symmetric) {
  float last = 0;
  for (float x = -110; x < 110; x += 0.0137f) {
    const float s = sigmoid(x);
    EXPECT_TRUE(s >= 0 && s <= 1) << x;
    EXPECT_GE(s, last * (1 - 4e-7f)) << x;
    EXPECT_NEAR(s + sigmoid(-x), 1, 3e-7) << x;
    last = s;
  }
  EXPECT_EQ(silu(-200.0f), 0.0f);
  EXPECT_EQ(silu(200.0f), 200.0f);
}

TEST(math, silu_slope_is_the_derivative_of_silu) {
  for (double x = -12; x < 12; x += 0.37) {
    const double h = 1e-5;
    EXPECT_NEAR(silu_slope(x), (silu(x + h) - silu(x - h)) / (2 * h), 1e-9) << x;
    EXPECT_NEAR(silu_slope(float(x)), silu_slope(double(float(x))), 1e-6) << x;
  }
}

}  // namespace gyr::testing::math_suite
