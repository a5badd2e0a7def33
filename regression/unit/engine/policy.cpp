// SPDX-License-Identifier: BSD-3-Clause
// Restart policy: if a run is restarted and on how many ranks, checked on random sequences of attempts.
#include "src/supervisor/policy.hpp"

#include <random>

#include "kernels/base/error.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::policy_suite {

namespace {

constexpr int batch = 24;

int largest_divisor_of_batch(int most) {
  for (int data = most; data > 0; --data)
    if (batch % data == 0) return data;
  return 0;
}

Policy policy_of(int data, int model_ranks = 1, int spares = -1, Index max_restarts = 10) {
  return {data * model_ranks, model_ranks, spares, max_restarts, [](int most) { return largest_divisor_of_batch(most); }};
}

Attempt killed(int ranks, int rank, const std::string& host, int hosts, bool progress) {
  Attempt attempt;
  attempt.ranks = ranks, attempt.rank = rank, attempt.host = host, attempt.hosts = hosts;
  attempt.state = "lost", attempt.code = int(Exit::again), attempt.to = progress ? 1 : 0;
  return attempt;
}

std::string host_of(int rank) { return "node" + std::to_string(rank / 4); }

// Random failures hit the same few ranks repeatedly. As long as each attempt saves a checkpoint, the run is restarted
// on all ranks.
TEST(policy, run_that_saves_checkpoints_restarts_after_rank_loss) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int data = largest_divisor_of_batch(1 + int(random() % 12)), model_ranks = 1 + int(random() % 4), ranks = data * model_ranks;
    const Policy policy = policy_of(data, model_ranks);
    std::vector<Attempt> attempts;
    for (Index restarts = 0; restarts <= policy.max_restarts; ++restarts) {
      const int rank = int(random() % unsigned(std::min(ranks, 2)));
      attempts.push_back(killed(ranks, rank, host_of(rank), 1 + (ranks - 1) / 4, true));
      const Decision next = decide(attempts, policy);
      EXPECT_EQ(next.go_on, restarts < policy.max_restarts) << restarts;
      if (next.go_on) {
        EXPECT_EQ(next.ranks, ranks);
      } else {
        EXPECT_NE(next.why.find(fmt::format("{} restarts", policy.max_restarts)), std::string::npos) << next.why;
      }
    }
  }
}

TEST(policy, restarts_are_limited_by_max_restarts) {
  for (Index most = 0; most < 5; ++most) {
    std::vector<Attempt> attempts;
    do attempts.push_back(killed(2, 0, "a", 1, true));
    while (decide(attempts, policy_of(2, 1, -1, most)).go_on);
    EXPECT_EQ(Index(attempts.size()), most + 1);
  }
}

TEST(policy, permanent_errors_are_not_restarted) {
  for (const Exit code : {Exit::usage, Exit::data, Exit::missing, Exit::config, Exit::io, Exit::again, Exit::numeric, Exit::internal, Exit::device}) {
    const bool final = code == Exit::usage || code == Exit::data || code == Exit::missing || code == Exit::config;
    for (const char* state : {"failed", "died", "lost"}) {
      Attempt attempt = killed(4, 1, "a", 2, true);
      attempt.code = int(code), attempt.state = state;
      EXPECT_EQ(decide({attempt}, policy_of(4)).go_on, !final) << int(code) << " " << state;
    }
  }
  for (const char* state : {"done", "stopped"}) {
    Attempt attempt = killed(4, -1, "", 2, true);
    attempt.state = state;
    const Decision next = decide({attempt}, policy_of(4));
    EXPECT_FALSE(next.go_on);
    EXPECT_EQ(next.why, "");
  }
}

TEST(policy, two_attempts_without_checkpoint_end_the_run) {
  for (const bool before : {false, true})
    for (const char* state : {"lost", "died", "failed", "hung", "stale"}) {
      std::vector<Attempt> attempts{killed(4, 1, "a", 1, before), killed(4, 1, "a", 1, false)};
      attempts.back().state = state;
      const Decision next = decide(attempts, policy_of(4));
      EXPECT_EQ(next.go_on, before) << state;
      if (next.go_on) {
        EXPECT_EQ(next.ranks, 4) << state;  // on a single host, fewer ranks would not help
      }
    }
}

TEST(policy, lack_of_progress_names_the_last_checkpoint) {
  Attempt attempt = killed(4, 1, "a", 1, false);
  EXPECT_EQ(decide({attempt, attempt}, policy_of(4)).why, "two attempts without a new checkpoint: no progress since the start");
  attempt.from = attempt.to = 12;
  EXPECT_EQ(decide({attempt, attempt}, policy_of(4)).why, "two attempts without a new checkpoint: no progress since step 12");
}

// One of several hosts loses a rank in two attempts in a row, the second without a checkpoint. The run continues with
// one data-parallel replica fewer until a checkpoint is saved.
TEST(policy, bad_host_reduces_data_parallel_size_until_checkpoint) {
  for (const int model_ranks : {1, 3}) {
    const Policy policy = policy_of(4, model_ranks);
    const int all = 4 * model_ranks, fewer = 3 * model_ranks;
    std::vector<Attempt> attempts{killed(all, 1, "a", 2, true), killed(all, 2, "a", 2, false)};
    EXPECT_EQ(decide(attempts, policy).ranks, fewer);
    for (const auto& [other, hosts] : {std::pair("b", 2), {"a", 1}, {"", 2}}) {
      const std::vector<Attempt> innocent{killed(all, 1, other, hosts, true), killed(all, 1, other == std::string("b") ? "a" : other, hosts, false)};
      EXPECT_EQ(decide(innocent, policy).ranks, all) << other << hosts;
    }
    attempts.push_back(killed(fewer, 0, "a", 2, true));
    EXPECT_EQ(decide(attempts, policy).ranks, all);
    attempts.back() = killed(fewer, 0, "b", 2, false);
    EXPECT_FALSE(decide(attempts, policy).go_on);
    attempts.back() = killed(fewer, 0, "a", 2, false);
    EXPECT_EQ(decide(attempts, policy).ranks, 2 * model_ranks);
  }
  const std::vector<Attempt> single{killed(2, 1, "a", 2, true), killed(2, 1, "a", 2, false)};
  EXPECT_EQ(decide(single, policy_of(1, 2)).ranks, 2);  // the only replica cannot be dropped
}

TEST(policy, ranks_lost_beyond_spares_reduce_data_parallelism) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int data = largest_divisor_of_batch(2 + int(random() % 11)), model_ranks = 1 + int(random() % 3), spares = int(random() % 4);
    const Policy policy = policy_of(data, model_ranks, spares, 1000);
    std::vector<Attempt> attempts;
    int ranks = policy.ranks, lost = 0;
    while (true) {
      const bool loses = random() % 2 == 0;
      attempts.push_back(killed(ranks, loses ? 0 : -1, "a", 1, true));
      lost += loses;
      const int left = policy.ranks - std::max(0, lost - spares);
      int splits = 0;
      for (int d = 1; d * model_ranks <= left && d <= data; ++d)
        if (batch % d == 0) splits = d;
      const Decision next = decide(attempts, policy);
      EXPECT_EQ(next.go_on, splits > 0);
      if (!next.go_on) break;
      EXPECT_EQ(next.ranks, splits * model_ranks);
      EXPECT_EQ(next.why.empty(), next.ranks == ranks) << next.why;
      ranks = next.ranks;
    }
  }
}

}  // namespace

}  // namespace gyr::testing::policy_suite
