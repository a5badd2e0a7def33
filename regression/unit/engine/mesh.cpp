// SPDX-License-Identifier: BSD-3-Clause
// Meshes: subsets of the ranks of a run, and their text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "regression/support/seed.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr::testing::mesh_suite {
namespace {

TEST(mesh, text_reads_back_to_the_same_ranks) {
  std::mt19937 random(seed_of_run());
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + int(random() % 40);
    Mesh drawn;
    for (int rank = 0; rank < ranks; ++rank)
      if (random() % 3 > 0) drawn.ranks.push_back(rank);
    if (drawn.ranks.empty()) continue;
    const auto read = Mesh::read(drawn.text(), ranks);
    ASSERT_TRUE(read.has_value()) << drawn.text();
    EXPECT_EQ(*read, drawn);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = std::find(drawn.ranks.begin(), drawn.ranks.end(), rank);
      EXPECT_EQ(drawn.index_of(rank), at == drawn.ranks.end() ? std::nullopt : std::optional(int(at - drawn.ranks.begin())));
    }
  }
}

TEST(mesh, wrong_text_is_refused) {
  for (const char* text : {"", ",", "0,", "-1", "0-", "3-1", "0,0", "0-2,2", "8", "0-8", "a", "0 1", "0--2", "all,0", "99999999999"})
    EXPECT_FALSE(Mesh::read(text, 8).has_value()) << text;
  EXPECT_EQ(Mesh::read("all", 3)->ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Mesh::read("6,0-2", 8)->text(), "0-2,6") << "ranks are sorted";
}

}  // namespace
}  // namespace gyr::testing::mesh_suite
