// SPDX-License-Identifier: BSD-3-Clause
// activation.alpha: auto is as fast as any offloaded fraction that fits into host memory. --longest finds the longest
// sequence that fits into memory.
#include "src/planner/layouts/offload_fraction.hpp"

#include "regression/planner/random_run.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/planner/predict/longest_sequence.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr::testing::offload_fraction_suite {
namespace {

// Long sequences, for which an offloaded fraction alpha is a nonzero number of rows.
RunConfig draw_long(Dice& dice, const char* policy) {
  const int pipeline = dice.one_of<int>({1, 1, 2}), micros = dice.between(1, 4);
  Deck deck = Deck::parse(
      fmt::format("model:\n  pattern: {}\n  vocab_size: 64\n  hidden_size: {}\n  attention: {{num_heads: 4, num_kv_heads: 2, head_dim: 8}}\n"
                  "  mamba: {{num_heads: 4, head_dim: 8, state_size: 8, chunk_size: 64}}\n  mlp: {{intermediate_size: {}}}\n"
                  "train: {{global_batch_size: {}, micro_batch_size: 1, seq_length: {}}}\nparallel: {{pipeline: {}}}\nactivation: {{policy: {}}}\n",
                  dice.one_of<std::string>({"\"P x 8\"", "M-*-M-*-M-", "\"*- x 4\""}), 8 * dice.between(2, 6), 8 * dice.between(2, 16), micros,
                  64 * dice.between(8, 32), pipeline, policy),
      "drawn");
  return read_run_config(deck);
}

// Draws a cluster where copies to the host take about as long as the computation that they overlap.
Cluster draw_machine(Dice& dice, double seconds, double bytes) {
  Cluster c = random_cluster(dice);
  c.nodes = 0, c.device.memory = 1e12;
  c.host = {0, bytes / seconds * dice.real(0.2, 5), dice.between(0, 3) > 0};
  return c;
}

TEST(offload_fraction, automatic_alpha_is_fastest_within_host_memory) {
  Dice dice(seed_of_run());
  int between = 0, limited = 0;
  for (int i = 0; i < 30; ++i) {
    RunConfig run = draw_long(dice, "memo");
    const Layout layout = layout_of(run, run.parallel.pipeline);
    const auto at = [&](double alpha) {
      run.offload.alpha = alpha;
      return engine_config(run, layout);
    };
    const auto max_host_bytes = [&](double alpha) { return StagePlans(at(alpha), layout).largest_rank(at(alpha)).host; };
    Cluster c = random_cluster(dice);
    c.host = {1e12, 1e30, true};
    c = draw_machine(dice, predict(StagePlans(at(1), layout), at(1), layout, c).seconds - c.fit.step, 2.0 * double(max_host_bytes(1)) * at(1).micros);
    if (dice.coin()) c.host.memory = double(max_host_bytes(0)) + dice.real(0, 1.2) * double(max_host_bytes(1) - max_host_bytes(0));
    RunConfig asked = run;
    asked.offload.find_alpha = true;
    const OffloadFraction found = best_fraction(asked, layout, c);
    EXPECT_EQ(found.alpha * alpha_steps, std::floor(found.alpha * alpha_steps));
    const auto seconds = [&](double alpha) { return predict(StagePlans(at(alpha), layout), at(alpha), layout, c).seconds; };
    EXPECT_EQ(found.seconds, seconds(found.alpha));
    EXPECT_TRUE(c.host.memory == 0 || double(max_host_bytes(found.alpha)) <= c.host.memory);
    for (int n = 0; n <= 16; ++n)
      EXPECT_TRUE(n / 16.0 > found.most || found.seconds <= 1.01 * seconds(n / 16.0)) << found.alpha << " and " << n << "/16 of trial " << i;
    between += found.alpha > 0 && found.alpha < 1, limited += found.most < 1 && found.alpha == found.most;
  }
  EXPECT_GT(between, 5);
  EXPECT_GT(limited, 1);
}

TEST(offload_fraction, offloading_without_host_memory_is_refused) {
  Dice dice(seed_of_run());
  const RunConfig run = draw_long(dice, "memo");
  Cluster c = random_cluster(dice);
  c.nodes = 0, c.host = {1, 1e10, true};
  const auto refusal = [&] {
    const Error error = error_of([&] { best_fraction(run, layout_of(run, run.parallel.pipeline), c); });
    EXPECT_EQ(error.code, Exit::config);
    return std::string(error.what());
  };
  for (const std::string& part : {std::string("activation.policy"), c.name, std::string("has room for 0.0")})
    EXPECT_NE(refusal().find(part), std::string::npos) << refusal();
  c.host = {1e12, 0, true};
  EXPECT_NE(refusal().find("host.bandwidth"), std::string::npos) << refusal();
}

TEST(offload_fraction, longest_sequence_fills_the_available_memory) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 12; ++i) {
    RunConfig run = draw_long(dice, "keep");
    const bool deep = dice.coin();  // enough layers that offloading saves memory, as two layers stay on the device
    if (deep) run.model.pattern = std::string(std::size_t(dice.between(8, 12)), 'P'), run.parallel.pipeline = 1;
    const int ranks = run.parallel.pipeline;
    const auto taken = [&](const ActivationChoice& choice, Index length) {
      RunConfig other = run;
      other.recompute = choice.recompute, other.offload = choice.offload, other.train.seq_length = length;
      const Layout layout = layout_of(other, ranks);
      MemoryLimits most;
      for (int position = 0; position < ranks; ++position) {
        const Capacity capacity = predicted_capacity(engine_config(other, layout), layout, position);
        most.device = std::max(most.device, double(capacity.total())), most.host = std::max(most.host, double(capacity.host()));
      }
      return most;
    };
    const std::vector<ActivationChoice> choices = activation_choices();
    const MemoryLimits deck = taken(choices.front(), run.train.seq_length);
    const MemoryLimits limits{deck.device * dice.real(1, 3), deep || dice.coin() ? std::numeric_limits<double>::infinity() : 2 * deck.device};
    std::map<std::string, Index> found;
    for (const ActivationChoice& choice : choices) {
      const auto [tokens, is_longest] = longest_sequence(run, ranks, choice, limits);
      const Index unit = unit_of_length(run), fewer = dice.between(1, int(tokens / unit)) * unit;
      found[choice.name] = tokens;
      ASSERT_GT(tokens, 0) << choice.name;
      EXPECT_FALSE(is_longest);
      // the search stops at `fewer` tokens and reports that longer sequences were not tried
      const LongestSequence tried = longest_sequence(run, ranks, choice, limits, fewer);
      EXPECT_TRUE(tried.tokens == fewer && (tried.is_longest || fewer == tokens)) << choice.name << " " << fewer;
      EXPECT_EQ(tokens % unit, 0);
      const MemoryLimits here = taken(choice, tokens), beyond = taken(choice, tokens + unit);
      EXPECT_TRUE(here.device <= limits.device && here.host <= limits.host) << choice.name;
      EXPECT_TRUE(beyond.device > limits.device || beyond.host > limits.host) << choice.name << " " << tokens;
    }
    EXPECT_GE(found["recompute: none"], run.train.seq_length);
    EXPECT_TRUE(!deep || found["policy: swap"] > found["recompute: none"]);
  }
}

}  // namespace
}  // namespace gyr::testing::offload_fraction_suite
