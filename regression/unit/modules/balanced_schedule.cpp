// SPDX-License-Identifier: BSD-3-Clause
#include "modules/context/balanced_schedule.hpp"

#include <map>

#include "regression/support/testing.hpp"

namespace gyr::balanced_schedule_suite {
namespace {

using Schedules = std::vector<std::vector<BalancedStep>>;  // schedules of all ranks, indexed by rank

constexpr int most_ranks = 33;

Schedules schedules(int ranks) {
  Schedules all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(balanced_schedule(ranks, rank));
  return all;
}

}  // namespace

TEST(balanced_schedule, every_visible_query_key_pair_occurs_once) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    SCOPED_TRACE(ranks);
    std::map<std::pair<int, int>, int> met;
    for (const auto& steps : schedules(ranks)) {
      EXPECT_EQ(int(steps.size()), ranks / 2 + 1);
      for (const BalancedStep& s : steps)
        if (s.queries >= 0) ++met[{s.queries, s.keys}];
    }
    EXPECT_EQ(int(met.size()), ranks * (ranks + 1) / 2);
    for (const auto& [pair, times] : met) {
      EXPECT_GE(pair.first, pair.second);
      EXPECT_EQ(times, 1) << "queries of rank " << pair.first << ", keys of rank " << pair.second;
    }
  }
}

// With an odd number of ranks no rank is ever idle. With an even number, half of the ranks are idle in the last step.
TEST(balanced_schedule, ranks_idle_only_in_last_step) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    SCOPED_TRACE(ranks);
    int slots = 0, used = 0;
    for (const auto& steps : schedules(ranks))
      for (const BalancedStep& s : steps) ++slots, used += s.queries >= 0;
    EXPECT_EQ(ranks % 2 ? used : used * (ranks + 2), ranks % 2 ? slots : slots * (ranks + 1));
  }
}

// Each rank computes with blocks that it owns or has received, and every receive has a matching send.
TEST(balanced_schedule, every_receive_has_a_matching_send) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    const Schedules all = schedules(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t t = 0; t < all[rank].size(); ++t) {
        const BalancedStep& s = all[rank][t];
        SCOPED_TRACE(fmt::format("rank {} of {}, step {}", rank, ranks, t));
        EXPECT_EQ(s.queries >= 0 && s.queries != rank, s.received == Moved::queries);
        EXPECT_EQ(s.keys >= 0 && s.keys != rank, s.received == Moved::keys);
        EXPECT_EQ(s.from, s.received == Moved::keys ? s.keys : s.received == Moved::queries ? s.queries : -1);
        EXPECT_EQ(s.to < 0, s.sent == Moved::nothing);
        if (s.received != Moved::nothing) {
          EXPECT_EQ(all[s.from][t].to, rank);
          EXPECT_EQ(all[s.from][t].sent, s.received);
        }
        if (s.sent != Moved::nothing) {
          EXPECT_EQ(all[s.to][t].from, rank);
        }
      }
  }
}

// A rank either computes for other ranks or sends its queries away, never both. So no two ranks wait for each other's
// results.
TEST(balanced_schedule, no_rank_both_sends_and_receives_queries) {
  for (int ranks = 1; ranks <= most_ranks; ++ranks)
    for (const auto& steps : schedules(ranks)) {
      bool helps = false, helped = false;
      for (const BalancedStep& s : steps) helps |= s.received == Moved::queries, helped |= s.sent == Moved::queries;
      EXPECT_FALSE(helps && helped) << ranks;
    }
}

}  // namespace gyr::balanced_schedule_suite
