// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/pairs.hpp"

#include <map>

#include "regression/support/testing.hpp"

namespace gyr::testing::pairs_suite {
namespace {

// Recounts over all possible rows: each pair of levels that occurs in a valid row must occur in the table at least
// `times` times.
void expect_every_pair(const Levels& levels, const std::function<bool(const Levels&)>& valid, int times, std::uint64_t seed) {
  std::map<std::vector<int>, int> possible;
  Levels row(levels.size(), 0);
  const auto pairs = [](const Levels& r, auto&& visit) {
    for (int a = 0; a < int(r.size()); ++a)
      for (int b = a + 1; b < int(r.size()); ++b) visit(std::vector<int>{a, r[a], b, r[b]});
  };
  for (bool more = true; more;) {
    if (valid(row)) pairs(row, [&](const std::vector<int>& pair) { possible[pair] = 0; });
    more = false;
    for (std::size_t f = 0; f < levels.size() && !more; ++f) {
      more = ++row[f] < levels[f];
      if (!more) row[f] = 0;
    }
  }
  const auto table = every_pair(levels, valid, times, 10, seed);
  EXPECT_GE(table.size(), 10u);
  for (const Levels& r : table) {
    EXPECT_TRUE(valid(r));
    pairs(r, [&](const std::vector<int>& pair) { ++possible.at(pair); });
  }
  for (const auto& [pair, count] : possible) EXPECT_GE(count, times);
  EXPECT_EQ(table, every_pair(levels, valid, times, 10, seed));
}

TEST(pairs, every_pair_occurs_as_often_as_requested) {
  const auto all = [](const Levels&) { return true; };
  for (const std::uint64_t seed : {1, 2, 3}) {
    expect_every_pair({2, 2, 2}, all, 1, seed);
    expect_every_pair({4, 3, 5, 2, 2}, all, 2, seed);
    expect_every_pair(
        {4, 3, 5, 2, 2}, [](const Levels& r) { return r[0] + r[1] < 4 && (r[3] == 0 || r[0] > 0); }, 3, seed);
  }
}

TEST(pairs, tables_need_far_fewer_rows_than_all_combinations) {
  EXPECT_LT(every_pair(
                {4, 4, 4, 4, 4, 4}, [](const Levels&) { return true; }, 1, 0, 1)
                .size(),
            40u);  // of 4096 combinations; 16 is the minimum
}

}  // namespace
}  // namespace gyr::testing::pairs_suite
