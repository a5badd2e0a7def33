// SPDX-License-Identifier: BSD-3-Clause
#include "modules/pass/rotary.hpp"

#include <cmath>

#include "regression/support/testing.hpp"

namespace gyr::testing::rotary_suite {

TEST(rotary, each_rotary_table_is_computed_once) {
  constexpr Index positions = 12;
  Arena memory(Memory::weights, 1 << 20);
  RotaryTables tables(memory, positions);
  Device dev(false, 0);
  const auto angle = [](const auto& table, Index p, Index j) { return std::atan2(double(table.sine(p, j)), double(table.cosine(p, j))); };
  const auto first = tables.get<double>(dev, 100, {}, 4);
  const Index taken = memory.used();
  EXPECT_EQ(Index(first.cosine.extent(0)), positions);
  EXPECT_EQ(tables.get<double>(dev, 100, {}, 4).cosine.data(), first.cosine.data());
  EXPECT_EQ(memory.used(), taken) << "a second request for the same table allocated memory";
  const auto other = tables.get<double>(dev, 25, {}, 4);
  const auto half = tables.get<double>(dev, 100, {RopeScaling::linear, 2}, 4);
  const auto narrow = tables.get<float>(dev, 100, {}, 4);
  EXPECT_NEAR(angle(first, 3, 1), 0.3, 1e-12);
  EXPECT_NEAR(angle(other, 3, 1), 0.6, 1e-12);
  EXPECT_NEAR(angle(half, 3, 1), 0.15, 1e-12);
  EXPECT_NEAR(angle(narrow, 3, 1), 0.3, 1e-6);
}

}  // namespace gyr::testing::rotary_suite
