// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/kokkos/lanes.hpp"

#include <vector>

#include "regression/support/testing.hpp"

namespace gyr::testing::lanes_suite {
namespace {

TEST(lanes, run_every_piece_once_with_separate_scratch) {
  constexpr Index count = 37;
  Device dev(false, 1 << 20), dry(true, 0);
  std::vector<int> seen(count), changed(count);
  const auto piece = [&](Device& lane, Index i) {
    const Scope scope(lane.scratch);
    const auto x = lane.scratch.tensor<double>(64 + i);
    const auto run = lane.launch("piece", double(i), 0);
    if (!run) return;
    ++seen[i];
    for (Index j = 0; j < 64 + i; ++j) x(j) = double(i);
    for (int again = 0; again < 1000; ++again)
      for (Index j = 0; j < 64 + i; ++j) changed[i] += x(j) != double(i);
  };
  for_lanes(dev, "pieces", count, piece, false);
  for_lanes(dry, "pieces", count, piece, false);
  EXPECT_EQ(seen, std::vector<int>(count, 1));
  EXPECT_EQ(changed, std::vector<int>(count, 0));
  EXPECT_EQ(dev.scratch.used(), 0);
  EXPECT_EQ(dev.scratch.high_water(), dry.scratch.high_water());
  for (const Device* d : {&dev, &dry}) {
    ASSERT_EQ(d->work().size(), 1u);
    EXPECT_EQ(d->work()[0].calls, count);
    EXPECT_EQ(d->work()[0].flops, double(count * (count - 1) / 2));
  }
}

TEST(lanes, rethrow_the_error_of_a_piece) {
  Device dev(false, 1 << 20);
  EXPECT_THROW(for_lanes(dev, "pieces", 9, [](Device&, Index i) { ensure(i != 7, "piece {} fails", i); }), Error);
}

}  // namespace
}  // namespace gyr::testing::lanes_suite
