// SPDX-License-Identifier: BSD-3-Clause
// Many seeded trials, for a night or a release: ctest -L slow.
#include <gtest/gtest.h>

#include <cstdlib>

#include "regression/faults.hpp"

using namespace gyr::testing;

namespace {

TEST(campaign, a_hundred_and_five_faults) {
  Count all;
  for (unsigned seed = 100; seed < 115; ++seed)
    for (const char* kind : {"kill", "stop", "hang", "exit", "slow", "nan", "bitflip"}) fault_trial(kind, seed, all);
  std::printf("faults, seeds 100 to 114: %d tried, %d survived\n", all.tried, all.survived);
  EXPECT_EQ(all.survived, all.tried);
}

TEST(campaign, sixty_signals) {
  Count all;
  for (unsigned seed = 100; seed < 160; ++seed) signal_trial(seed, all);
  std::printf("signals, seeds 100 to 159: %d tried, %d survived\n", all.tried, all.survived);
  EXPECT_EQ(all.survived, all.tried);
}

}  // namespace
