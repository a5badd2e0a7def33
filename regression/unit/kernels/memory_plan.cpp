// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/memory_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "regression/support/testing.hpp"

namespace gyr::memory_plan_suite {
namespace {

std::vector<MemoryBlock> drawn(std::mt19937_64& random, int count, Index events, Index largest) {
  std::vector<MemoryBlock> blocks;
  for (int i = 0; i < count; ++i) {
    const Index first = Index(random() % events), last = first + 1 + Index(random() % (events - first));
    blocks.push_back({first, last, 1 + Index(random() % largest)});
  }
  return blocks;
}

bool overlap(const std::vector<MemoryBlock>& blocks, const MemoryPlan& plan, std::size_t i, std::size_t j) {
  const bool at_once = blocks[i].first < blocks[j].last && blocks[j].first < blocks[i].last;
  return at_once && plan.offsets[i] < plan.offsets[j] + blocks[j].bytes && plan.offsets[j] < plan.offsets[i] + blocks[i].bytes;
}

void expect_sound(const std::vector<MemoryBlock>& blocks, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), blocks.size());
  Index top = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_GE(plan.offsets[i], 0);
    top = std::max(top, plan.offsets[i] + blocks[i].bytes);
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(overlap(blocks, plan, i, j)) << i << " and " << j;
  }
  EXPECT_EQ(top, plan.bytes);
  for (const MemoryBlock& at : blocks) {
    Index alive = 0;
    for (const MemoryBlock& b : blocks) alive += b.first <= at.first && at.first < b.last ? b.bytes : 0;
    EXPECT_LE(alive, plan.live);
  }
  EXPECT_LE(plan.live, plan.bytes);
}

// Lowest memory over all orders of placing blocks at the lowest free offset. This includes an optimum, because any plan
// can be pushed down.
Index lowest_over_all_orders(const std::vector<MemoryBlock>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  Index least = std::numeric_limits<Index>::max();
  do {
    MemoryPlan plan;
    plan.offsets.assign(blocks.size(), 0);
    Index top = 0;
    for (std::size_t n = 0; n < order.size(); ++n) {
      // Move the block up until it overlaps none of the placed blocks.
      Index& at = plan.offsets[order[n]];
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t k = 0; k < n; ++k)
          if (overlap(blocks, plan, order[n], order[k])) at = plan.offsets[order[k]] + blocks[order[k]].bytes, moved = true;
      }
      top = std::max(top, at + blocks[order[n]].bytes);
    }
    least = std::min(least, top);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(memory_plan, plan_of_up_to_eight_blocks_is_optimal) {
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(fmt::format("trial {} of seed 17", trial));
    const std::vector<MemoryBlock> blocks = drawn(random, 2 + trial % (trial % 10 == 0 ? 7 : 6), 8, 9);
    const MemoryPlan plan = plan_memory(blocks, 1);
    expect_sound(blocks, plan);
    EXPECT_TRUE(plan.optimal);
    EXPECT_EQ(plan.bytes, lowest_over_all_orders(blocks));
  }
}

TEST(memory_plan, plan_of_many_blocks_is_near_peak_usage) {
  std::mt19937_64 random(18);
  double worst = 1;
  int met = 0;
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(fmt::format("trial {} of seed 18", trial));
    const std::vector<MemoryBlock> blocks = drawn(random, 24, 30, 1000);
    const MemoryPlan plan = plan_memory(blocks, 1, 20000);
    expect_sound(blocks, plan);
    worst = std::max(worst, double(plan.bytes) / double(plan.live));
    met += plan.bytes == plan.live;
  }
  EXPECT_LE(worst, 1.12);
  EXPECT_GE(met, 90);
}

// Activations kept for backward form a stack, with the temporaries of each operation on top. The plan wastes no byte.
TEST(memory_plan, nested_lifetimes_need_only_the_peak_live_bytes) {
  std::vector<MemoryBlock> blocks;
  constexpr Index layers = 200;
  for (Index i = 0; i < layers; ++i) {
    blocks.push_back({i, 2 * layers - i, 1000 + 37 * (i % 11)});
    blocks.push_back({i, i + 1, 5000});
    blocks.push_back({2 * layers - i - 1, 2 * layers - i, 9000});
  }
  const MemoryPlan plan = plan_memory(blocks, 256);
  EXPECT_EQ(plan.bytes, plan.live);
  EXPECT_TRUE(plan.optimal);
}

TEST(memory_plan, empty_blocks_need_no_memory) {
  EXPECT_EQ(plan_memory({}).bytes, 0);
  const std::vector<MemoryBlock> empty{{0, 5, 0}, {1, 2, 0}};
  EXPECT_EQ(plan_memory(empty).bytes, 0);
}

TEST(memory_plan, offsets_and_size_are_rounded_to_alignment) {
  const std::vector<MemoryBlock> blocks{{0, 2, 1}, {0, 2, 257}, {2, 3, 3}};
  const MemoryPlan plan = plan_memory(blocks, 256);
  EXPECT_EQ(plan.bytes, 768);
  for (const Index offset : plan.offsets) EXPECT_EQ(offset % 256, 0);
}

}  // namespace
}  // namespace gyr::memory_plan_suite
