// SPDX-License-Identifier: BSD-3-Clause
// Predicted seconds of the calls of an iteration of policy training, and the search over pairs of layouts.
#include <cmath>
#include <numeric>
#include <set>

#include "regression/planner/random_run.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/deck/deck.hpp"
#include "src/planner/policy/forward_times.hpp"
#include "src/planner/policy/iteration_times.hpp"
#include "src/planner/policy/move_times.hpp"
#include "src/planner/policy/pair_search.hpp"
#include "src/planner/predict/prediction.hpp"
#include "src/policy/minibatches.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr::testing::policy_times_suite {
namespace {

RunConfig run_of(const std::vector<std::string>& overrides) {
  Deck deck = Deck::parse(
      "model: {pattern: P x 4, vocab_size: 64, hidden_size: 16, attention: {num_heads: 4, num_kv_heads: 2, head_dim: 4},\n"
      "        mamba: {num_heads: 4, head_dim: 8, state_size: 4}, mlp: {intermediate_size: 32}}\n"
      "train: {objective: policy, seq_length: 32, precision: fp32, micro_batch_size: 1}\n"
      "rl: {prompts: 16, num_generations: 2, generate: {max_new_tokens: 8}, rewards: {short: {type: length, most: 3}}}\n",
      "test.yaml", overrides);
  return read_run_config(deck);
}

// Nodes of four devices whose links differ.
Cluster some_cluster(double latency = 1e-6) {
  Cluster c;
  c.per_node = 4;
  c.device.memory = 1e9, c.device.memory_bandwidth = 1e10, c.device.fp64 = c.device.fp32 = c.device.bf16 = 1e12;
  c.node = {latency, 1e9}, c.network = {latency, 1e8}, c.islands = c.network;
  return c;
}

GenerationTimes times_on(const RunConfig& run, int ranks, const Cluster& cluster) {
  const Layout training = layout_of(run, ranks);
  const GenerationPlace place = generation_place(run, training);
  return {run.model, place, generator_capacity(run, 24, place.layout), planned_answers(run), false, {cluster}};
}

double seconds_on(const std::vector<std::string>& overrides, int ranks, const Cluster& cluster) {
  return times_on(run_of(overrides), ranks, cluster).seconds();
}

// Calls of 8, 2, 1, 2 and 3 s and a move of 0.5 s follow each other in 16.5 s. If the first runs beside the others, they take 8.5 s.
TEST(policy_times, overlapping_calls_take_the_longer_of_two) {
  IterationTimes times;
  const auto add = [&](CallPart part, double seconds) {
    times.calls.push_back({.part = part, .name = {}, .model = {}, .mesh = {}, .seconds = seconds});
  };
  add(CallPart::move, 0.5), add(CallPart::generation, 8);
  for (const double seconds : {2.0, 1.0, 2.0}) add(CallPart::others, seconds);
  add(CallPart::training, 3);
  EXPECT_DOUBLE_EQ(times.seconds(), 16.5);
  times.overlaps = true;
  EXPECT_DOUBLE_EQ(times.seconds(), 8.5);
  add(CallPart::training, 2);
  EXPECT_DOUBLE_EQ(times.seconds(), 10.5);
}

// Every call has its seconds, calls on common ranks follow each other, and the last one ends with the iteration.
TEST(policy_times, timeline_draws_each_call_once) {
  Dice dice(seed_of_run());
  for (int trial = 0; trial < 50; ++trial) {
    IterationTimes times;
    times.overlaps = dice.coin();
    const Mesh training{{0, 1}}, generation = times.overlaps ? Mesh{{2}} : training;
    const auto add = [&](CallPart part, const Mesh& mesh) {
      times.calls.push_back({.part = part, .name = {}, .model = {}, .mesh = mesh, .seconds = dice.real(0.1, 3)});
    };
    add(CallPart::move, training), add(CallPart::generation, generation);
    for (int i = dice.between(0, 3); i > 0; --i) add(CallPart::others, training);
    add(CallPart::training, training);
    const CallTimeline timeline = call_timeline(times);
    EXPECT_EQ(timeline.iterations, times.overlaps ? 2 : 1);
    EXPECT_EQ(timeline.spans.size(), timeline.iterations * times.calls.size());
    double last = 0;
    for (const CallSpan& a : timeline.spans) {
      last = std::max(last, a.end);
      EXPECT_NEAR(a.end - a.begin, times.calls[a.call].seconds, 1e-12);
      const bool generates = times.calls[a.call].part == CallPart::generation;
      EXPECT_EQ(a.answers, 1 + int(a.begin / times.seconds() + 1e-9) + (times.overlaps && generates));
      for (const CallSpan& b : timeline.spans) {
        const bool apart = &a == &b || a.end <= b.begin + 1e-12 || b.end <= a.begin + 1e-12;
        const bool common = times.calls[a.call].mesh == times.calls[b.call].mesh;
        EXPECT_TRUE(apart || !common) << "trial " << trial;
      }
    }
    EXPECT_NEAR(timeline.seconds, timeline.iterations * times.seconds(), 1e-12);
    EXPECT_NEAR(last, timeline.seconds, 1e-9);
  }
}

TEST(policy_times, data_coordinates_share_the_prompts) {
  const Cluster c = some_cluster();
  const double one = seconds_on({"rl.generate.sequences_together=4"}, 1, c), four = seconds_on({"rl.generate.sequences_together=4"}, 4, c);
  EXPECT_NEAR(one / four, 4, 1e-9);
  EXPECT_NEAR(seconds_on({"rl.generate.sequences_together=4", "rl.prompts=32"}, 1, c) / one, 2, 1e-9);
}

// Memory-bound passes take as long for one sequence as for a few, and later passes read a longer cache.
TEST(policy_times, decode_is_linear_between_counted_passes) {
  const GenerationTimes times = times_on(run_of({"rl.generate.sequences_together=12"}), 1, some_cluster());
  for (const double past : {24.0, 26.5, 31.0}) {
    EXPECT_NEAR(times.decode(6, past), (times.decode(4, past) + times.decode(8, past)) / 2, 1e-12);
    EXPECT_NEAR(times.decode(9, past), times.decode(8, past) + (times.decode(12, past) - times.decode(8, past)) / 4, 1e-12);
    EXPECT_LT(times.decode(8, past), 8 * times.decode(1, past));
  }
  EXPECT_NEAR(times.decode(4, 26), (times.decode(4, 24) + times.decode(4, 28)) / 2, 1e-12);
  EXPECT_GT(times.decode(4, 31), times.decode(4, 24));
}

// Dry runs of other layouts, mesh sizes and numbers of sequences are the same as own ones.
TEST(policy_times, shared_passes_take_seconds_of_own_ones) {
  Dice dice(seed_of_run());
  const Cluster c = some_cluster();
  GenerationRuns runs;
  std::size_t places = 0;
  for (int trial = 0; trial < 12; ++trial) {
    const int tensor = dice.one_of<int>({1, 2, 4}), pipeline = dice.one_of<int>({1, 2, 4}), data = dice.one_of<int>({1, 2, 3});
    const RunConfig run =
        run_of({"model.pattern=M-*-P-P-", "rl.prompts=48", fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.pipeline={}", pipeline),
                fmt::format("rl.generate.tensor={}", tensor), fmt::format("rl.generate.pipeline={}", pipeline),
                fmt::format("rl.generate.sequences_together={}", dice.between(1, 12)),
                "rl.generate.precision=" + dice.one_of<std::string>({"fp32", "bf16"})});
    const GenerationPlace place = generation_place(run, layout_of(run, tensor * pipeline * data));
    const GeneratorCapacity limits = generator_capacity(run, 24, place.layout);
    const AnswerCounts answers = planned_answers(run);
    const GenerationTimes own(run.model, place, limits, answers, false, {c}), shared(run.model, place, limits, answers, false, {c}, &runs);
    EXPECT_EQ(shared.seconds(), own.seconds()) << place.layout.text();
    EXPECT_EQ(shared.prompt(), own.prompt()) << place.layout.text();
    ASSERT_EQ(shared.bytes().size(), own.bytes().size());
    for (std::size_t stage = 0; stage < own.bytes().size(); ++stage) EXPECT_EQ(shared.bytes()[stage].working, own.bytes()[stage].working);
    places += own.bytes().size() * (tensor > 1 ? 2 : 1);
  }
  EXPECT_LT(runs.count(), places) << "no dry run was shared";
}

// With links of no cost, a pipeline computes the layers of one rank in turn, and a decoded token passes all stages.
TEST(policy_times, decode_visits_stages_one_after_another) {
  Cluster c = some_cluster(0);
  c.node.bandwidth = c.network.bandwidth = 1e30;
  const double whole = times_on(run_of({}), 1, c).decode(8, 25);
  const double staged = times_on(run_of({"parallel.pipeline=4"}), 4, c).decode(8, 25);
  EXPECT_NEAR(staged / whole, 1, 0.05);
  const double slow = times_on(run_of({"parallel.pipeline=4"}), 4, some_cluster(1e-3)).decode(8, 25);
  EXPECT_GT(slow - staged, 3e-3) << "three messages of 1 ms, and the drawn tokens return";
}

TEST(policy_times, moves_take_bytes_by_link_and_messages) {
  const auto plan = [](const std::vector<std::string>& overrides, int ranks) {
    const RunConfig run = run_of(overrides);
    const Layout training = layout_of(run, ranks);
    return generation_moves(run.model, DType::f32, {}, training, generation_place(run, training), 4);
  };
  Cluster c = some_cluster();
  c.device.memory_bandwidth = 1e30;
  // Both tensor-parallel ranks receive what the other one has.
  const MovePlan two = plan({"parallel.tensor=2", "rl.generate.tensor=1"}, 2);
  const std::map<std::pair<int, int>, Index> bytes = two.bytes();
  const double most = double(std::max(bytes.at({0, 1}), bytes.at({1, 0})));
  EXPECT_NEAR(move_seconds(two, c), 1e-6 + most / 1e9, 1e-12);
  // Half of a large vocabulary takes several messages of 32 MiB.
  const MovePlan large = plan({"parallel.tensor=2", "rl.generate.tensor=1", "model.vocab_size=2000000"}, 2);
  const double half = double(large.bytes().at({0, 1})), messages = std::ceil(half / double(Index(32) << 20));
  EXPECT_GE(messages, 2);
  c.node.latency = 0.5;
  EXPECT_NEAR(move_seconds(large, c), 0.5 * messages + half / 1e9, 1e-3);
  c.node.latency = 1e-6;
  EXPECT_LT(move_seconds(plan({"rl.generate.tensor=1"}, 1), c), 1e-12) << "a rank that has all weights sends nothing";
  const MovePlan eight = plan({"parallel.tensor=1", "parallel.pipeline=8", "model.pattern=P x 8", "rl.generate.pipeline=1"}, 8);
  EXPECT_GT(move_seconds(eight, c), 4 * double(eight.bytes().at({0, 7})) / 1e8) << "four stages are on the other node";
}

TEST(policy_times, windows_are_those_of_first_fit) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 200; ++i) {
    const Index answer = dice.between(1, 16), prompt = dice.between(1, 16), prompts = dice.between(1, 20) * 4;
    const RunConfig run = run_of({fmt::format("rl.plan.answer_tokens={}", std::min<Index>(answer, 8)),
                                  fmt::format("rl.plan.prompt_tokens={}", prompt), fmt::format("rl.prompts={}", prompts), "rl.minibatches=2"});
    const AnswerCounts answers = planned_answers(run);
    EXPECT_EQ(answers.prompt_tokens, prompt);
    const std::vector<Index> lengths(std::size_t(prompts), answers.prompt_tokens + answers.tokens);
    EXPECT_EQ(windows_of_minibatch(run, answers), Index(first_fit(lengths, 32).size())) << lengths.front() << " tokens";
  }
}

TEST(policy_times, iteration_adds_up_its_calls) {
  const Cluster c = some_cluster();
  const std::vector<std::string> overrides{"rl.epochs=3",         "rl.minibatches=2",       "rl.plan.reward_seconds=0.25",
                                           "parallel.pipeline=2", "rl.generate.pipeline=1", "optimizer.lr=1e-3"};
  const RunConfig run = run_of(overrides);
  const Layout layout = layout_of(run, 4);
  const IterationTimes times = iteration_times(run, layout, {c});
  std::vector<std::string> names;
  for (const PlannedCall& call : times.calls) names.push_back(call.name);
  EXPECT_EQ(names, (std::vector<std::string>{"move of the weights", "generation", "other rewards", "old log-probabilities", "training"}));
  EXPECT_EQ(times.calls[2].seconds, 0.25);
  EXPECT_GT(times.calls[0].seconds, 0);
  // 16 answers of 32 tokens in a minibatch fill 16 windows, 8 on each of two data-parallel ranks.
  EngineConfig config = engine_config(run, layout);
  config.micros = 8;
  EXPECT_NEAR(times.calls[4].seconds, 6 * predict(StagePlans(config, layout), config, layout, c).seconds, 1e-12);
  EXPECT_NEAR(times.seconds(), times.calls[0].seconds + times.calls[1].seconds + 0.25 + times.calls[3].seconds + times.calls[4].seconds, 1e-12);
}

TEST(policy_times, forward_passes_fill_a_pipeline) {
  const Cluster c = some_cluster();
  const RunConfig run = run_of({"parallel.pipeline=2"});
  const Layout layout = layout_of(run, 2);
  const Mesh mesh = Mesh::of_all(2);
  const ForwardTimes times(engine_config(run, layout), {layout, mesh}, {c});
  const double further = times.seconds(2) - times.seconds(1);
  EXPECT_NEAR(times.seconds(9), times.seconds(1) + 8 * further, 1e-12);
  EXPECT_LT(further, times.seconds(1));
  EXPECT_GE(2 * further, times.seconds(1)) << "the slower of two stages takes at least half of both";
}

// A random space of pairs, in which some layouts are too large.
PairSpace random_space(Dice& dice) {
  const std::size_t ranks = std::size_t(dice.between(1, 3));
  const auto part = [&](double bytes) {
    PlanPart p{double(dice.between(0, 8)), {}, {}};
    for (std::size_t r = 0; r < ranks; ++r) p.kept.push_back(dice.real(0, bytes)), p.working.push_back(dice.real(0, bytes));
    return p;
  };
  PairSpace space;
  for (int i = dice.between(1, 6); i > 0; --i) {
    space.training.push_back(part(3));
    space.borrowed.push_back(dice.coin() ? std::optional(part(1)) : std::nullopt);
  }
  for (int i = dice.between(0, 6); i > 0; --i) space.copies.push_back(part(2));
  std::vector<PlanPart> others;
  for (std::size_t i = 0; i < space.training.size(); ++i) others.push_back(part(2));
  std::vector<double> moves;
  for (std::size_t i = 0; i < space.training.size() * space.copies.size(); ++i) moves.push_back(double(dice.between(0, 4)));
  const std::size_t copies = space.copies.size();
  space.others = [others](std::size_t t) { return others[t]; };
  space.move_seconds = [moves, copies](std::size_t t, std::size_t c) { return moves[t * copies + c]; };
  space.usable = std::vector<double>(ranks, dice.real(1, 9));
  return space;
}

// Every pair that fits, with its seconds, in the order of seconds and indices.
std::vector<LayoutPair> all_pairs(const PairSpace& space) {
  std::vector<LayoutPair> pairs;
  for (std::size_t t = 0; t < space.training.size(); ++t)
    for (std::size_t g = 0; g <= space.copies.size(); ++g) {
      if (g == 0 && !space.borrowed[t]) continue;
      const PlanPart &training = space.training[t], others = space.others(t), generation = g == 0 ? *space.borrowed[t] : space.copies[g - 1];
      bool fits = true;
      for (std::size_t r = 0; r < space.usable.size(); ++r)
        fits = fits &&
               training.kept[r] + others.kept[r] + generation.kept[r] + std::max({training.working[r], others.working[r], generation.working[r]}) <=
                   space.usable[r];
      if (!fits) continue;
      LayoutPair pair{t, g == 0 ? std::nullopt : std::optional(g - 1), training.seconds + others.seconds + generation.seconds};
      if (g > 0) pair.seconds += space.move_seconds(t, g - 1);
      pairs.push_back(pair);
    }
  std::stable_sort(pairs.begin(), pairs.end(), [](const LayoutPair& a, const LayoutPair& b) { return a.seconds < b.seconds; });
  return pairs;
}

TEST(policy_times, fastest_pairs_are_those_of_all_pairs) {
  Dice dice(seed_of_run());
  int found = 0, pruned = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const PairSpace space = random_space(dice);
    const std::size_t most = std::size_t(dice.between(1, 4));
    std::vector<LayoutPair> expected = all_pairs(space);
    if (expected.size() > most) expected.resize(most);
    const PairResult result = fastest_pairs(space, most);
    ASSERT_EQ(result.best.size(), expected.size()) << "trial " << trial;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(result.best[i].seconds, expected[i].seconds) << "trial " << trial;
      EXPECT_EQ(result.best[i].training, expected[i].training) << "trial " << trial;
      EXPECT_EQ(result.best[i].copy, expected[i].copy) << "trial " << trial;
    }
    found += !expected.empty(), pruned += result.moves + result.too_large < result.pairs;
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(pruned, 100) << "a search that visits all pairs would prune nothing";
}

TEST(policy_times, pairs_left_out_are_slower_than_their_bound) {
  Dice dice(seed_of_run());
  int left_out = 0, missed = 0;
  for (int trial = 0; trial < 500; ++trial) {
    PairSpace space = random_space(dice);
    std::set<std::pair<std::size_t, std::size_t>> outside;
    for (std::size_t t = 0; t < space.training.size(); ++t)
      for (std::size_t g = 0; g <= space.copies.size(); ++g)
        if (dice.coin()) outside.insert({t, g});
    const auto index_of = [](std::optional<std::size_t> copy) { return copy ? *copy + 1 : 0; };
    space.is_left_out = [&](std::size_t t, std::optional<std::size_t> copy) { return outside.contains({t, index_of(copy)}); };
    const PairResult result = fastest_pairs(space, 2);
    const std::vector<LayoutPair> expected = all_pairs(space);
    ASSERT_EQ(result.best.empty(), expected.empty()) << "trial " << trial;
    for (std::size_t i = 0; i < std::min(expected.size(), result.best.size()); ++i) {
      const LayoutPair& pair = expected[i];
      const bool found = std::any_of(result.best.begin(), result.best.end(),
                                     [&](const LayoutPair& p) { return p.training == pair.training && p.copy == pair.copy; });
      if (found) continue;
      EXPECT_TRUE(outside.contains({pair.training, index_of(pair.copy)})) << "trial " << trial;
      EXPECT_GT(result.left_out, 0) << "trial " << trial;
      EXPECT_GE(pair.seconds, result.least_left_out) << "trial " << trial;
      ++missed;
    }
    left_out += result.left_out > 0;
  }
  EXPECT_GT(left_out, 50);
  EXPECT_GT(missed, 20);
}

}  // namespace
}  // namespace gyr::testing::policy_times_suite
