// SPDX-License-Identifier: BSD-3-Clause
// Ranks and layout of generation in policy training: that of training by default, or one of its own.
#include <random>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/deck/deck.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr::testing::generation_place_suite {
namespace {

RunConfig run_of(const std::vector<std::string>& overrides) {
  Deck deck = Deck::parse(
      "model: {pattern: PE x 4, vocab_size: 64, hidden_size: 16, attention: {num_heads: 4, num_kv_heads: 2, head_dim: 4},\n"
      "        mamba: {num_heads: 4, head_dim: 8, state_size: 4}, mlp: {intermediate_size: 32}, moe: {experts: 4, intermediate_size: 16}}\n"
      "train: {objective: policy, seq_length: 32, precision: fp32}\n"
      "rl: {prompts: 12, num_generations: 2, generate: {max_new_tokens: 8}, rewards: {short: {type: length, most: 3}}}\n",
      "test.yaml", overrides);
  return read_run_config(deck);
}

GenerationPlace place_of(const std::vector<std::string>& overrides, int ranks) {
  const RunConfig run = run_of(overrides);
  return generation_place(run, layout_of(run, ranks));
}

void expect_refused(const std::vector<std::string>& overrides, int ranks, std::initializer_list<const char*> parts) {
  const Error error = error_of([&] { place_of(overrides, ranks); });
  EXPECT_EQ(error.code, Exit::config) << error.what();
  for (const char* part : parts) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is not in: " << error.what();
}

TEST(generation_place, layout_of_training_is_borrowed_by_default) {
  const GenerationPlace place = place_of({"parallel.tensor=2", "parallel.sequence=true", "parallel.context=2"}, 4);
  EXPECT_TRUE(place.borrows);
  EXPECT_FALSE(place.layout.sequence);
  EXPECT_EQ(place.layout.size(Axis::context), 2);
  EXPECT_EQ(place.mesh, Mesh::of_all(4));
}

TEST(generation_place, layouts_that_cannot_generate_need_another) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases{
      {{"parallel.expert=2", "parallel.tensor=2"}, "expert parallelism"},
      {{"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.tensor=2"}, "virtual pipeline stages"},
      {{"parallel.shard=weights", "parallel.tensor=2"}, "parallel.shard: weights"}};
  for (const auto& [overrides, reason] : cases) {
    expect_refused(overrides, 4, {reason, "rl.generate.tensor = 2", "copy of the weights"});
    std::vector<std::string> own = overrides;
    own.push_back("rl.generate.tensor=2");
    const GenerationPlace place = place_of(own, 4);
    EXPECT_FALSE(place.borrows);
    EXPECT_EQ(place.layout.expert, 1);
    EXPECT_EQ(Index(place.layout.stages.size()), place.layout.size(Axis::pipeline));
    EXPECT_NE(place.layout.shard, Shard::weights);
  }
}

TEST(generation_place, unsuitable_ranks_and_sizes_are_named) {
  expect_refused({"rl.generate.ranks=3-9"}, 4, {"rl.generate.ranks = 3-9", "ranks 0 to 3"});
  expect_refused({"rl.generate.ranks=0-2", "rl.generate.tensor=2"}, 4, {"generation on 3 ranks (0-2)", "rl.generate.pipeline and tensor"});
  expect_refused({"rl.generate.pipeline=16"}, 4, {"generation on 4 ranks"});
}

TEST(generation_place, separate_ranks_leave_the_others_for_training) {
  const RunConfig run = run_of({"rl.generate.separate=true", "rl.generate.ranks=1,4-5", "rl.generate.tensor=1", "parallel.tensor=2"});
  const Mesh training = training_ranks(run, 7);
  EXPECT_EQ(training, (Mesh{{0, 2, 3, 6}}));
  const GenerationPlace place = generation_place(run, layout_of(run, training.size()));
  EXPECT_EQ(place.mesh, (Mesh{{1, 4, 5}}));
  EXPECT_EQ(place.training, training);
  EXPECT_EQ(place.layout.size(Axis::data), 3);
  const auto refused = [](const std::vector<std::string>& overrides, int ranks) {
    return std::string(error_of([&] { training_ranks(run_of(overrides), ranks); }).what());
  };
  EXPECT_NE(refused({"rl.generate.separate=true"}, 4).find("no rank would train"), std::string::npos);
  EXPECT_NE(refused({"rl.generate.separate=true", "rl.generate.ranks=0-1"}, 4).find("name other ranks, such as 2-3"), std::string::npos);
  EXPECT_NE(refused({"rl.generate.separate=true", "rl.generate.ranks=2-4"}, 4).find("ranks 0 to 3"), std::string::npos);
  EXPECT_NE(refused({"rl.staleness=1", "rl.dynamic_sampling=2"}, 4).find("have already changed"), std::string::npos);
}

// Every rank receives each element of its part once, unless it has the element already. All ranks together hold the
// model once for each data-parallel replica. GYR_SEED selects other draws.
TEST(generation_place, drawn_layouts_move_and_plan_the_whole_model) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 40; ++trial) {
    const auto of = [&](std::vector<int> all) { return all[random() % all.size()]; };
    const int ranks = 8, tensor = of({1, 2, 4}), pipeline = of({1, 2}), own_tensor = of({1, 2, 4}), own_pipeline = of({1, 2}), used = of({4, 8});
    const bool separate = used < ranks && tensor * pipeline <= ranks - used && of({0, 1});
    if (own_tensor * own_pipeline > used) continue;
    const std::string precision = of({0, 1}) ? "bf16" : "fp32";
    std::vector<std::string> overrides{fmt::format("parallel.tensor={}", tensor),
                                       fmt::format("parallel.pipeline={}", pipeline),
                                       fmt::format("parallel.shard={}", of({0, 1}) ? "weights" : "none"),
                                       fmt::format("rl.generate.tensor={}", own_tensor),
                                       fmt::format("rl.generate.pipeline={}", own_pipeline),
                                       "rl.generate.precision=" + precision,
                                       used == ranks ? "rl.generate.ranks=all" : "rl.generate.ranks=1-2,5,7",
                                       fmt::format("rl.generate.separate={}", separate)};
    SCOPED_TRACE(fmt::format("trial {}: {}", trial, fmt::join(overrides, " ")));
    const RunConfig run = run_of(overrides);
    const Layout training = layout_of(run, training_ranks(run, ranks).size());
    EXPECT_EQ(training.ranks(), separate ? ranks - used : ranks);
    const GenerationPlace place = generation_place(run, training);
    const int replicas = used / (own_tensor * own_pipeline);
    EXPECT_EQ(place.layout.size(Axis::data), replicas);
    const GeneratorCapacity limits = generator_capacity(run, 5, place.layout);
    EXPECT_EQ(limits.sequences, (12 + replicas - 1) / replicas * 2);
    const MovePlan plan = generation_moves(run.model, DType::f32, run.optimizer.trained(), training, place, 1);
    Index received = 0, copied = 0, stored = 0;
    for (const Move& m : plan.sent) received += m.elements_sent();
    for (const Move& m : plan.kept) copied += m.elements_sent();
    for (int rank = 0; rank < ranks; ++rank) {
      const GeneratorBytes bytes = generation_bytes(run.model, place, limits, rank);
      EXPECT_EQ(bytes.weights > 0, place.mesh.index_of(rank).has_value());
      if (!place.mesh.index_of(rank)) continue;
      const int position = place.layout.position_of(*place.mesh.index_of(rank));
      for (const PlacedTensor& w : plan.to.weights)
        for (const Held& held : stored_at(w, place.layout, position)) stored += elements(held.box.count);
    }
    EXPECT_EQ(received + copied, stored);
    if (separate) {
      EXPECT_EQ(copied, 0);
    }
  }
}

// Memory of a generator after passes of all layers, for prompts of all lengths and all numbers of sequences.
GeneratorBytes bytes_of_full_passes(const ModelConfig& model, DType precision, Grid& grid, const GeneratorCapacity& limits) {
  const std::unique_ptr<Generator> generator = Generator::dry_run(model, precision, grid, limits);
  for (Index length = 1; length <= limits.prompt; ++length)
    generator->read(0, std::vector<Token>(std::size_t(length), 0), {}, std::vector<DrawPlace>(std::size_t(limits.samples)));
  for (Index n = 1; n <= limits.sequences; ++n)
    generator->decode(std::vector<Generator::Step>(std::size_t(n), Generator::Step{0, limits.prompt + limits.tokens - 1, 1, {}}), {});
  return generator->dry_bytes();
}

// Memory is measured on few layers of each type.
TEST(generation_place, memory_is_that_of_passes_of_all_layers) {
  Dice dice(seed_of_run());
  for (int trial = 0; trial < 12; ++trial) {
    const int tensor = dice.one_of<int>({1, 2}), pipeline = dice.one_of<int>({1, 2, 3});
    const std::string pattern = dice.one_of<std::string>({"P x 9", "PE x 5", "M-M-*-*-M-*-E*-M", "\"*-- x 4\"", "MMMMMM*EM"});
    const std::vector<std::string> overrides{"model.pattern=" + pattern,
                                             fmt::format("rl.generate.tensor={}", tensor),
                                             fmt::format("rl.generate.pipeline={}", pipeline),
                                             fmt::format("model.tie_word_embeddings={}", dice.coin()),
                                             fmt::format("model.vocab_size={}", dice.one_of<int>({32, 300})),
                                             fmt::format("model.hidden_size={}", dice.one_of<int>({8, 16, 48}))};
    const RunConfig run = run_of(overrides);
    const GenerationPlace place = generation_place(run, layout_of(run, tensor * pipeline));
    const GeneratorCapacity limits{.sequences = dice.between(1, 9), .prompt = dice.between(1, 20), .tokens = 4, .samples = dice.between(1, 2)};
    for (int position = 0; position < tensor * pipeline; ++position) {
      Grid grid = Grid::dry_run(place.layout, position);
      const GeneratorBytes bytes = Generator::bytes_of(run.model, place.precision, grid, limits);
      const GeneratorBytes expected = bytes_of_full_passes(run.model, place.precision, grid, limits);
      EXPECT_EQ(bytes.weights, expected.weights) << fmt::format("{}", fmt::join(overrides, " "));
      EXPECT_EQ(bytes.working, expected.working) << fmt::format("position {}: {}", position, fmt::join(overrides, " "));
    }
  }
}

}  // namespace
}  // namespace gyr::testing::generation_place_suite
