// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/random.hpp"

#include <array>
#include <cmath>
#include <vector>

#include "regression/support/testing.hpp"

namespace gyr::testing::random_suite {

using Block = std::array<std::uint32_t, 4>;

Block block(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d, std::uint32_t k0, std::uint32_t k1) {
  const PhiloxWords x = philox({{a, b, c, d}}, {{k0, k1}});
  return {x.at[0], x.at[1], x.at[2], x.at[3]};
}

// Test vectors published with the Random123 library (kat_vectors, philox4x32-10).
TEST(random, philox_matches_published_test_vectors) {
  const std::uint32_t all = 0xffffffff;
  EXPECT_EQ(block(0, 0, 0, 0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block(all, all, all, all, all, all), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0), (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(random, draws_depend_only_on_seed_name_and_index) {
  const Stream a(7, "blocks.0.w_in"), again(7, "blocks.0.w_in"), other_name(7, "blocks.1.w_in"), other_seed(8, "blocks.0.w_in"),
      high_seed(7 + (std::uint64_t(1) << 32), "blocks.0.w_in");
  const Index far = (Index(1) << 40) + 3;
  a.normal(0);
  for (const Index i : {Index(0), Index(5), Index(1) << 32, far}) {
    EXPECT_EQ(a.normal(i), again.normal(i));
    EXPECT_EQ(a.uniform(i), again.uniform(i));
    EXPECT_NE(a.uniform(i), other_name.uniform(i));
    EXPECT_NE(a.uniform(i), other_seed.uniform(i));
    EXPECT_NE(a.uniform(i), high_seed.uniform(i));
    EXPECT_NE(a.uniform(i), a.uniform(i + 1));
  }
  EXPECT_NE(a.uniform(3), a.uniform(far));  // indices beyond 32 bits give their own draws
}

// Each bound is five standard errors of the statistic over n independent draws.
TEST(random, normal_draws_have_gaussian_moments) {
  const int n = 200000;
  const Stream stream(1, "moments");
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, within = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    m1 += x / n, m2 += x * x / n, m3 += x * x * x / n, m4 += x * x * x * x / n;
    within += (std::abs(x) < 1) / double(n);
  }
  EXPECT_NEAR(m1, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(m2, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(m3, 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(m4, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(within, std::erf(std::sqrt(0.5)), 5 * std::sqrt(0.22 / n));
}

TEST(random, uniform_draws_fill_the_unit_interval_evenly) {
  const int n = 200000, bins = 64;
  const Stream stream(1, "bins");
  std::vector<double> count(bins);
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    count[int(u * bins)] += 1;
  }
  double chi2 = 0;
  for (const double c : count) chi2 += (c - n / bins) * (c - n / bins) * bins / n;
  EXPECT_NEAR(chi2, bins - 1, 5 * std::sqrt(2.0 * (bins - 1)));
}

TEST(random, different_streams_and_neighbouring_draws_are_uncorrelated) {
  const int n = 200000;
  const Stream a(1, "a"), b(1, "b"), c(2, "a");
  double names = 0, seeds = 0, neighbours = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = a.normal(i), y = b.normal(i);
    names += x * y / n, seeds += x * c.normal(i) / n, neighbours += x * a.normal(i + 1) / n;
    squares += (x * x - 1) * (y * y - 1) / n;
  }
  for (const double correlation : {names, seeds, neighbours, squares / 2}) EXPECT_NEAR(correlation, 0, 5 * std::sqrt(1.0 / n));
}

}  // namespace gyr::testing::random_suite
