// SPDX-License-Identifier: BSD-3-Clause
// Minibatches and windows of policy training.
#include "src/policy/minibatches.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::minibatches_suite {
namespace {

TEST(minibatches, first_fit_gives_the_published_windows) {
  const std::vector<std::vector<Index>> expected{{0, 1}, {2}, {3, 4, 6}, {5}, {7}};
  EXPECT_EQ(first_fit({7, 3, 9, 4, 4, 6, 2, 5}, 10), expected);
}

TEST(minibatches, draws_give_the_published_order) {
  std::vector<Index> order;
  for (const auto& one : draw_minibatches(7, 3, 8, 8)) order.push_back(one.at(0));
  EXPECT_EQ(order, (std::vector<Index>{4, 3, 7, 5, 2, 6, 0, 1}));
}

TEST(minibatches, minibatches_take_every_answer_once) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    const Index minibatches = 1 + Index(random() % 5), each = 1 + Index(random() % 6);
    const auto drawn = draw_minibatches(random(), Index(random() % 1000), minibatches * each, minibatches);
    std::vector<Index> all;
    ASSERT_EQ(Index(drawn.size()), minibatches);
    for (const auto& one : drawn) {
      EXPECT_EQ(Index(one.size()), each);
      EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
      all.insert(all.end(), one.begin(), one.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<Index> every(std::size_t(minibatches * each));
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(all, every);
    std::vector<Index> order = draw_order(random(), 3, 1, minibatches);
    std::sort(order.begin(), order.end());
    every.resize(std::size_t(minibatches));
    EXPECT_EQ(order, every);
  }
}

TEST(minibatches, windows_hold_every_answer_within_their_length) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    const Index window = 4 + Index(random() % 30);
    std::vector<Index> lengths(1 + random() % 20);
    for (Index& length : lengths) length = 1 + Index(random() % std::uint64_t(window));
    std::vector<int> seen(lengths.size(), 0);
    Index opened = -1;
    for (const auto& items : first_fit(lengths, window)) {
      Index used = 0;
      EXPECT_GT(items.at(0), opened) << "windows are opened in the order of the answers";
      opened = items.at(0);
      for (const Index i : items) used += lengths[std::size_t(i)], seen[std::size_t(i)] += 1;
      EXPECT_LE(used, window);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ptrdiff_t(lengths.size()));
  }
}

}  // namespace
}  // namespace gyr::testing::minibatches_suite
