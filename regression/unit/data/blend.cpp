// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/mixing/blend.hpp"

#include <cmath>
#include <limits>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::blend_suite {

// Picks computed by hand. Dyadic weights make all products and differences exact, so that rounding decides no pick.
TEST(blend, follows_the_greedy_rule) {
  const Blend blend({2, 1, 1});
  const std::int64_t corpus[] = {0, 1, 2, 0, 0, 1, 2, 0}, number[] = {0, 0, 0, 1, 2, 1, 1, 3};
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(blend.at(i).corpus, corpus[i]) << i;
    EXPECT_EQ(blend.at(i).number, number[i]) << i;
  }
}

TEST(blend, keeps_proportions_and_numbers_samples_in_order) {
  const Blend blend({0.7, 0.2, 0.05, 0.05});
  std::int64_t taken[4] = {};
  for (std::int64_t i = 0; i < 20000; ++i) {
    const auto [corpus, number] = blend.at(i);
    ASSERT_EQ(number, taken[corpus]++) << i;
    for (int d = 0; d < 4; ++d) ASSERT_LE(std::abs(blend.weights()[std::size_t(d)] * double(i) - double(taken[d])), 3.0);
  }
}

TEST(blend, random_access_equals_sequential_access) {
  const Blend walked({3, 1, 2.5}), jumped({3, 1, 2.5});
  std::vector<std::pair<std::int64_t, std::int64_t>> picks;
  for (std::int64_t i = 0; i < 5000; ++i) picks.push_back({walked.at(i).corpus, walked.at(i).number});
  for (std::int64_t i = 4999; i >= 0; i -= 37) EXPECT_EQ(std::pair(jumped.at(i).corpus, jumped.at(i).number), picks[std::size_t(i)]) << i;
}

TEST(blend, refuses_empty_zero_negative_or_nonfinite_weights) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const auto& weights : {std::vector<double>{}, {1, 0}, {1, -1}, {nan}, {inf, 1}}) EXPECT_THROW(Blend{weights}, gyr::Error);
}

}  // namespace gyr::testing::blend_suite
