// SPDX-License-Identifier: BSD-3-Clause
// Row counts that ranks exchange in expert parallelism, against plain loops over the rows. The capacity is
// sufficient for any routing if this is requested.
#include "modules/layers/expert_exchange.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::expert_exchange_suite {
namespace {

// A row: its source rank and its chosen expert.
struct Sent {
  int from;
  Index expert;
};

TEST(expert_exchange, received_rows_match_loops_over_rows) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    const int ranks = 1 + int(random() % 5);
    const Index each = 1 + Index(random() % 4), experts = ranks * each;
    std::vector<Sent> rows;
    std::vector<Index> chosen(std::size_t(ranks * experts), 0);
    for (int from = 0; from < ranks; ++from)
      for (Index i = random() % 20; i > 0; --i) {
        rows.push_back({from, Index(random() % experts)});
        ++chosen[from * experts + rows.back().expert];
      }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Sent& a, const Sent& b) { return std::pair(a.from, a.expert) < std::pair(b.from, b.expert); });
    for (int rank = 0; rank < ranks; ++rank) {
      Communicator communicator("expert", dry_transport(rank, ranks));
      const ExpertExchange exchange(communicator, chosen);
      std::vector<std::int32_t> numbers;
      std::vector<Index> counts(std::size_t(each), 0);
      for (const Sent& row : rows)
        if (row.expert / each == rank) numbers.push_back(std::int32_t(row.expert % each)), ++counts[row.expert % each];
      EXPECT_EQ(exchange.experts(), numbers);
      EXPECT_EQ(exchange.received(), Index(numbers.size()));
      EXPECT_EQ(exchange.received_counts(), counts);
    }
  }
}

// Each rank sends the same number of rows, spread over the experts evenly up to one row. No rank then receives more
// than an even share plus one row per expert.
TEST(expert_exchange, even_exchange_distributes_rows_evenly) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    const int ranks = 1 + int(random() % 6);
    const Index each = 1 + Index(random() % 4), top_k = 1 + Index(random() % (ranks * each)), rows = Index(random() % 30);
    Communicator communicator("expert", dry_transport(int(random() % ranks), ranks));
    const ExpertExchange exchange = ExpertExchange::even(communicator, ranks * each, rows * top_k);
    for (int from = 0; from < ranks; ++from) {
      const auto begin = exchange.chosen().begin() + from * ranks * each;
      EXPECT_EQ(std::accumulate(begin, begin + ranks * each, Index(0)), rows * top_k);
      EXPECT_LE(*std::max_element(begin, begin + ranks * each) - *std::min_element(begin, begin + ranks * each), 1);
    }
    EXPECT_NO_THROW(exchange.check(ExpertExchange::capacity({&communicator, 1}, rows, top_k, ranks * each), 1));
  }
}

// Worst routing: every row chooses top_k different experts, all of one rank as far as that rank has enough.
TEST(expert_exchange, capacity_is_exact_for_worst_routing) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 200; ++draw) {
    const int ranks = 1 + int(random() % 5), home = int(random() % ranks);
    const Index each = 1 + Index(random() % 4), experts = ranks * each, top_k = 1 + Index(random() % experts), rows = 1 + Index(random() % 9);
    std::vector<Index> chosen(std::size_t(ranks * experts), 0);
    for (int from = 0; from < ranks; ++from)
      for (Index k = 0; k < top_k; ++k) chosen[from * experts + (home * each + k) % experts] += rows;
    Communicator communicator("expert", dry_transport(home, ranks));
    const Index most = ExpertExchange::capacity({&communicator, 0}, rows, top_k, experts);
    const ExpertExchange exchange(communicator, chosen);
    EXPECT_EQ(exchange.received(), most);
    EXPECT_NO_THROW(exchange.check(most, 0));
    try {
      exchange.check(most - 1, 1.5);
      FAIL() << "check() accepted more rows than the capacity";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::config);
      EXPECT_NE(std::string(e.what()).find("parallel.expert_room = 1.5"), std::string::npos);
    }
    EXPECT_LE(ExpertExchange::capacity({&communicator, 1.25}, rows, top_k, experts), most);
  }
}

}  // namespace
}  // namespace gyr::testing::expert_exchange_suite
