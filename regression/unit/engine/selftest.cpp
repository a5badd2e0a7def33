// SPDX-License-Identifier: BSD-3-Clause
// Self-test: every rank meets every other once, injected faults are named, and healthy ranks are not blamed.
#include <algorithm>
#include <map>
#include <set>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/selftest/tournament.hpp"
#include "src/selftest/verdict.hpp"

namespace gyr::testing::selftest_suite {
namespace {

using namespace gyr::selftest;

// Healthy findings of 3 to 8 ranks with rates that scatter by some percent, on hosts of two kinds of processors.
std::vector<Findings> draw_healthy(Dice& dice) {
  const int ranks = dice.between(3, 8), per_host = dice.between(1, 3), kinds = dice.between(1, 2);
  std::vector<Findings> all(static_cast<std::size_t>(ranks));
  const auto near = [&](double x) { return x * dice.real(0.93, 1.07); };
  for (int r = 0; r < ranks; ++r) {
    Findings& f = all[std::size_t(r)];
    const int host = r / per_host, kind = host % kinds;
    f.host = fmt::format("node{}", host), f.processor = fmt::format("kind {}", kind), f.place = r % per_host;
    f.sums.fill(std::uint64_t(100 + kind));
    f.memory_rate = near(1e10 * (kind + 1)), f.gemm_rate = near(1e11 * (kind + 1));
  }
  for (const int round : chosen_rounds(ranks, 32, 1))
    for (int r = 0; r < ranks; ++r)
      if (const int other = partner_of(r, round, ranks); other >= 0)
        all[std::size_t(r)].exchanges.push_back({other, true, near(r / per_host == other / per_host ? 1e-4 : 1e-3)});
  return all;
}

void fail_exchanges(std::vector<Findings>& all, int a, int b) {
  for (const auto& [rank, other] : {std::pair(a, b), std::pair(b, a)})
    for (Exchange& e : all[std::size_t(rank)].exchanges)
      if (e.partner == other) e.right = false;
}

enum class Injected { memory, repeat, sum, dead, slow_memory, slow_link, count };

// Injects a fault of the rank. False if the drawn ranks cannot show it: other bits need a majority.
bool inject(std::vector<Findings>& all, int rank, Injected fault) {
  Findings& f = all[std::size_t(rank)];
  const auto alike = std::ranges::count(all, f.processor, &Findings::processor);
  switch (fault) {
    case Injected::memory: f.memory_right = false; return true;
    case Injected::repeat: f.repeats = false; return true;
    case Injected::sum: f.sums[1] ^= 1; return alike >= 3;
    case Injected::dead:
      for (int r = 0; r < int(all.size()); ++r)
        if (r != rank) fail_exchanges(all, rank, r);
      return true;
    case Injected::slow_memory: f.memory_rate *= 0.5; return alike >= 3;
    case Injected::slow_link:
      for (Findings& other : all)
        for (Exchange& e : other.exchanges)
          if (e.partner == rank || &other == &f) e.seconds *= 4;
      return all.size() >= 6;
    case Injected::count: break;
  }
  return false;
}

std::set<int> blamed(const Verdict& v) {
  std::set<int> ranks;
  for (const Blame& b : v.blames) ranks.insert(b.rank);
  return ranks;
}

TEST(selftest, every_rank_meets_every_other_once) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    std::map<std::pair<int, int>, int> meetings;
    for (int round = 0; round < rounds_of(ranks); ++round)
      for (int r = 0; r < ranks; ++r)
        if (const int other = partner_of(r, round, ranks); other >= 0) {
          EXPECT_NE(other, r);
          EXPECT_EQ(partner_of(other, round, ranks), r);
          ++meetings[{r, other}];
        }
    EXPECT_EQ(int(meetings.size()), ranks * (ranks - 1)) << ranks;
    for (const auto& [pair, times] : meetings) EXPECT_EQ(times, 1) << ranks;
  }
  EXPECT_EQ(chosen_rounds(100, 32, 5).size(), 32u);
  EXPECT_EQ(chosen_rounds(100, 32, 5), chosen_rounds(100, 32, 5));
}

TEST(selftest, injected_faults_are_named) {
  Dice dice(seed_of_run());
  int shown = 0;
  while (shown < 200) {
    std::vector<Findings> all = draw_healthy(dice);
    const int rank = dice.between(0, int(all.size()) - 1);
    const auto fault = Injected(dice.between(0, int(Injected::count) - 1));
    if (!inject(all, rank, fault)) continue;
    ++shown;
    const Verdict v = verdict_of(all, true);
    EXPECT_EQ(blamed(v), std::set<int>{rank}) << "fault " << int(fault) << " on rank " << rank << " of " << all.size();
  }
}

TEST(selftest, healthy_ranks_are_not_blamed) {
  Dice dice(seed_of_run() + 1);
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(verdict_of(draw_healthy(dice), true).healthy()) << i;
}

// One failed link between ranks that reach all others accuses neither of them, and two failed ranks are both named.
TEST(selftest, failed_links_are_attributed_to_ranks) {
  Dice dice(seed_of_run() + 2);
  int links = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<Findings> all = draw_healthy(dice);
    const int n = int(all.size()), a = dice.between(0, n - 2), b = dice.between(a + 1, n - 1);
    if (n < 6) continue;
    std::vector<Findings> link = all;
    fail_exchanges(link, a, b);
    const Verdict of_link = verdict_of(link, true);
    EXPECT_TRUE(of_link.blames.empty());
    EXPECT_EQ(of_link.open.size(), 1u);
    ++links;
    for (int r = 0; r < n; ++r)
      for (const int bad : {a, b})
        if (r != bad) fail_exchanges(all, r, bad);
    EXPECT_EQ(blamed(verdict_of(all, true)), (std::set<int>{a, b}));
  }
  EXPECT_GT(links, 10);
}

TEST(selftest, rates_are_compared_with_an_earlier_test) {
  Dice dice(seed_of_run() + 3);
  for (int i = 0; i < 50; ++i) {
    const std::vector<Findings> earlier = draw_healthy(dice);
    std::vector<Findings> now = earlier;
    const int rank = dice.between(0, int(now.size()) - 1);
    EXPECT_TRUE(slower_than(earlier, now).empty());
    now[std::size_t(rank)].gemm_rate *= 0.7;
    const std::vector<Blame> slower = slower_than(earlier, now);
    ASSERT_EQ(slower.size(), 1u);
    EXPECT_EQ(slower[0].rank, rank);
    EXPECT_NE(slower[0].why.find("GEMM"), std::string::npos);
  }
}

TEST(selftest, findings_are_read_back) {
  Dice dice(seed_of_run() + 4);
  for (int i = 0; i < 20; ++i)
    for (const Findings& f : draw_healthy(dice)) {
      const Json json = json_of(f);
      EXPECT_EQ(json_text(json_of(findings_in(json_in(json_text(json)), "x"))), json_text(json));
    }
}

}  // namespace
}  // namespace gyr::testing::selftest_suite
