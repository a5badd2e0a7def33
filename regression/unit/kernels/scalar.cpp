// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/scalar.hpp"

#include <cmath>
#include <limits>

#include "regression/support/testing.hpp"

namespace gyr::testing::scalar_suite {

// The neighbours of x in bf16 are x (1 +- 2^-7). The error of rounding to nearest is at most half of that.
TEST(scalar, bf16_rounds_to_nearest) {
  for (float x = 1e-3f; x < 1e3f; x *= 1.0137f) EXPECT_LE(std::abs(float(bf16(x)) - x), x / 256) << x;
  EXPECT_EQ(float(bf16(1.0f + 1.0f / 256)), 1.0f);  // a tie is rounded to the even neighbour
  EXPECT_EQ(float(bf16(1.0f + 3.0f / 256)), 1.0f + 4.0f / 256);
}

TEST(scalar, bf16_keeps_infinity_and_nan) {
  EXPECT_TRUE(std::isinf(float(bf16(std::numeric_limits<float>::infinity()))));
  EXPECT_TRUE(std::isnan(float(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(float(bf16(__builtin_bit_cast(float, 0x7f800001u)))));  // a NaN whose payload would be lost by truncation
}

}  // namespace gyr::testing::scalar_suite
