// SPDX-License-Identifier: BSD-3-Clause
// Search for the fastest iteration of policy training: layouts of training and generation.
#include "src/planner/policy/policy_search.hpp"
#include "regression/planner/random_cluster.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/commands/cluster_report.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/machine/run_islands.hpp"
#include "src/planner/policy/copy_candidates.hpp"

namespace gyr::testing::policy_search_suite {
namespace {

// A deck of policy training with a reference model, and in half of the cases a critic.
struct DrawnPolicy {
  std::string deck;
  int ranks = 1;
  Cluster cluster;

  RunConfig run(const std::vector<std::string>& overrides = {}) const {
    Deck parsed = Deck::parse(deck, "drawn.yaml", overrides);
    return on_cluster(read_run_config(parsed), cluster, ranks);
  }
  BytesOfRun bytes() const {
    return [this](const RunConfig& r) { return bytes_if_fits(RunPlan(r, ranks), cluster); };
  }
  PolicySearchResult search(int layouts) const {
    PolicySearchOptions options;
    options.training.best = layouts, options.bytes = bytes();
    return policy_search(run(), ranks, {cluster}, options);
  }
};

// Slow links, and memory for some of the layouts.
Cluster drawn_cluster(Dice& dice) {
  Cluster c;
  c.name = "drawn", c.per_node = dice.one_of<int>({2, 4}), c.links_overlap = dice.coin();
  c.device.memory_bandwidth = dice.real(1e9, 1e11), c.device.fp64 = c.device.fp32 = c.device.bf16 = dice.real(1e9, 1e12), c.device.memory = 1e12;
  c.node = {dice.real(1e-7, 1e-5), dice.real(1e8, 1e10)}, c.network = {dice.real(1e-7, 1e-5), dice.real(1e7, 1e9)}, c.islands = c.network;
  return c;
}

DrawnPolicy drawn_policy(Dice& dice, int ranks, const std::string& keep) {
  const bool critic = dice.coin();
  DrawnPolicy d{.deck = {}, .ranks = ranks, .cluster = drawn_cluster(dice)};
  d.deck = fmt::format(
      "model: {{pattern: {}, vocab_size: 64, hidden_size: {}, attention: {{num_heads: 4, num_kv_heads: 4, head_dim: 4}},\n"
      "        mamba: {{num_heads: 4, head_dim: 8, state_size: 4, num_groups: 4}}, mlp: {{intermediate_size: 32}}}}\n"
      "train: {{objective: policy, seq_length: 32, precision: fp32, micro_batch_size: 1}}\n"
      "parallel: {{shard: {}, keep: [{}]}}\n"
      "rl: {{algorithm: {}, prompts: 24, num_generations: {}, epochs: {}, minibatches: {}, kl: {{coefficient: 0.1}},\n"
      "     generate: {{max_new_tokens: {}, precision: {}}}, rewards: {{short: {{type: length, most: 3}}}}}}\n"
      "models: {{reference: {{init_from: \"\", ranks: {}}}{}}}\n",
      dice.one_of<std::string>({"P x 4", "M-*-", "\"*-*-\""}), 16 * dice.between(1, 4), dice.one_of<std::string>({"none", "optimizer"}), keep,
      critic ? "ppo" : "grpo", critic ? 1 : 2, dice.between(1, 3), dice.between(1, 2), dice.between(2, 12),
      dice.one_of<std::string>({"\"\"", "\"\"", "bf16"}), dice.one_of<std::string>({"all", "all", "0"}), critic ? ", critic: {init_from: \"\"}" : "");
  const RunPlan plan(d.run({"parallel.shard=none", "models.reference.tensor=1", "models.reference.pipeline=1"}), ranks);
  d.cluster.device.memory = dice.real(0.5, 2.5) * double(plan.largest_rank().capacity.total());
  return d;
}

// The fastest iteration of all layouts that fit, each judged alone; infinity if none fits.
double fastest_of_all(const DrawnPolicy& d) {
  double fastest = std::numeric_limits<double>::infinity();
  const RunConfig run = d.run();
  std::vector<GenerationLayout> copies = copy_candidates(run, d.ranks, d.cluster);
  if (run.policy->generation.precision.empty()) copies.insert(copies.begin(), GenerationLayout());
  RunConfig alone = run;
  alone.models.clear();
  for (const LayoutChoice& shape : space_of(alone, d.ranks).shapes)
    for (const LayoutChoice& choice : variants_of(alone, shape))
      for (const GenerationLayout& copy : copies) {
        RunConfig here = with(run, choice);
        here.policy->generation = copy;
        try {
          const IterationTimes times = iteration_times(here, layout_of(here, d.ranks), {d.cluster});
          if (times.seconds() < fastest && d.bytes()(here)) fastest = times.seconds();
        } catch (const Error& error) {
          if (error.code != Exit::config) throw;
        }
      }
  return fastest;
}

TEST(policy_search, finds_the_fastest_of_all_layouts) {
  Dice dice(seed_of_run());
  int found = 0, copies = 0;
  for (int trial = 0; trial < 6; ++trial) {
    const DrawnPolicy d = drawn_policy(dice, 2, "recompute, micro_batch_size, schedule, shard");
    const double expected = fastest_of_all(d);
    const PolicySearchResult result = d.search(1000);
    const bool is_heuristic = result.heuristic && result.heuristic->seconds < expected;  // of other keys
    ASSERT_EQ(result.best.empty(), std::isinf(expected) && !result.heuristic) << d.deck;
    if (result.best.empty() || is_heuristic) continue;
    EXPECT_NEAR(result.best.front().seconds / expected, 1, 1e-12) << "trial " << trial << "\n" << d.deck;
    ++found, copies += result.best.front().generation.own();
  }
  EXPECT_GT(found, 1);
  EXPECT_GT(copies, 0);
}

// Reads the deck with the printed overrides, as plan and train do.
void expect_plan_of_overrides(const DrawnPolicy& d, const FoundIteration& f, const std::string& where) {
  const RunConfig run = d.run(f.lines);
  const IterationTimes times = iteration_times(run, layout_of(run, d.ranks), {d.cluster});
  EXPECT_NEAR(times.seconds() / f.seconds, 1, 1e-12) << where;
  EXPECT_NEAR(f.training_seconds + f.generation_seconds + f.move_seconds + f.others_seconds, f.seconds, 1e-12 * f.seconds) << where;
  EXPECT_NEAR(times.seconds(CallPart::generation), f.generation_seconds, 1e-12 * f.seconds) << where;
}

TEST(policy_search, overrides_are_planned_as_they_were_found) {
  Dice dice(seed_of_run());
  int found = 0, own = 0;
  for (int trial = 0; trial < 4; ++trial) {
    const DrawnPolicy d = drawn_policy(dice, 4, "schedule");
    const PolicySearchResult result = d.search(3);
    for (std::size_t i = 0; i < result.best.size(); ++i)
      expect_plan_of_overrides(d, result.best[i], fmt::format("trial {}, place {}\n{}", trial, i + 1, d.deck));
    if (result.heuristic) expect_plan_of_overrides(d, *result.heuristic, "heuristic\n" + d.deck);
    if (result.best.empty()) continue;
    const FoundIteration& first = result.best.front();
    const std::optional<double> bytes = d.bytes()(d.run(first.lines));
    ASSERT_TRUE(bytes.has_value()) << d.deck;
    EXPECT_EQ(*bytes, first.bytes) << "memory of the plan\n" << d.deck;
    ++found, own += first.generation.own();
  }
  EXPECT_GT(found, 1);
  EXPECT_GT(own, 0);
}

TEST(policy_search, is_never_slower_than_the_heuristic) {
  Dice dice(seed_of_run());
  int compared = 0, faster = 0;
  for (int trial = 0; trial < 8; ++trial) {
    const DrawnPolicy d = drawn_policy(dice, dice.one_of<int>({2, 4, 6}), "schedule, micro_batch_size");
    const PolicySearchResult result = d.search(2), again = d.search(2);
    ASSERT_EQ(result.best.size(), again.best.size()) << d.deck;
    for (std::size_t i = 0; i < result.best.size(); ++i) EXPECT_EQ(result.best[i].lines, again.best[i].lines) << "twice\n" << d.deck;
    if (!result.heuristic) continue;
    ASSERT_FALSE(result.best.empty()) << d.deck;
    EXPECT_LE(result.best.front().seconds, result.heuristic->seconds) << d.deck;
    ++compared, faster += result.best.front().seconds < result.heuristic->seconds;
  }
  EXPECT_GT(compared, 2);
  EXPECT_GT(faster, 0);
}

// A search whose time is over has an iteration if there is one, and states how much faster the others may be.
TEST(policy_search, time_limit_leaves_out_pairs) {
  Dice dice(seed_of_run());
  int ended = 0;
  for (int trial = 0; trial < 3; ++trial) {
    const DrawnPolicy d = drawn_policy(dice, 4, "schedule, micro_batch_size");
    PolicySearchOptions options;
    options.training.best = 2, options.bytes = d.bytes();
    const PolicySearchResult full = policy_search(d.run(), d.ranks, {d.cluster}, options);
    options.seconds = 0;
    const PolicySearchResult result = policy_search(d.run(), d.ranks, {d.cluster}, options);
    if (full.best.empty() || result.best.empty()) continue;
    EXPECT_FALSE(full.ended || full.layouts_ended);
    EXPECT_TRUE(result.ended) << d.deck;
    EXPECT_GE(result.best.front().seconds, full.best.front().seconds) << d.deck;
    EXPECT_LE(result.least_left_out, result.best.front().seconds) << d.deck;
    ++ended;
  }
  EXPECT_GT(ended, 0);
}

}  // namespace
}  // namespace gyr::testing::policy_search_suite
