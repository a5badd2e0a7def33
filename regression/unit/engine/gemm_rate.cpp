// SPDX-License-Identifier: BSD-3-Clause
// Measured GEMM rate, the denominator of MFU.
#include "src/engine/gemm_choice/gemm_rate.hpp"

#include "regression/support/testing.hpp"

namespace gyr::testing::gemm_rate_suite {
namespace {

// Ranks that take different times agree on the size of the matrices, so they wait for each other equally often.
TEST(gemm_rate, ranks_begin_each_trial_together) {
  int waits = 0;
  const GemmRate rate = gemm_rate(DType::f32, [&](double x) { return ++waits, x; });
  EXPECT_GT(rate.median, 0);
  EXPECT_GE(rate.best, rate.median);
  EXPECT_GE(waits, 5) << "each trial, and each choice of a size, waits for the other ranks";
  int slow_waits = 0;
  EXPECT_GT(gemm_rate(DType::f32, [&](double) { return ++slow_waits, 1.0; }).best, 0);
  EXPECT_EQ(slow_waits, 5) << "four trials of the smallest size, if another rank is slow";
}

TEST(gemm_rate, uncertain_rate_is_reported) {
  EXPECT_EQ(uncertainty_of({100e9, 95e9}), "");
  EXPECT_NE(uncertainty_of({230e9, 120e9}).find("MFU is uncertain: it is relative to 230 GFLOP/s per rank"), std::string::npos)
      << uncertainty_of({230e9, 120e9});
}

}  // namespace
}  // namespace gyr::testing::gemm_rate_suite
