// SPDX-License-Identifier: BSD-3-Clause
// Generation with a copy of the weights on another layout writes the texts of the engine that it is copied from, before and
// after a change of the weights. The ranks' working memory differs, so that the moves need many messages of a common size.
#include "src/train/policy_generator.hpp"

#include <random>

#include "regression/support/grids.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/state.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::policy_generator_suite {
namespace {

constexpr int ranks = 4;

ModelConfig model() {
  ModelConfig m = widened(named("T2"));
  m.pattern = "P*-MP*-M", m.vocab_size = 4000;
  return m;
}

Layout drawn_layout(std::mt19937& random, int most) {
  const std::vector<std::array<int, 3>> sizes{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1},
                                              {1, 4, 1}, {1, 1, 4}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}};
  for (;;) {
    const auto [data, pipeline, tensor] = sizes[random() % sizes.size()];
    if (data * pipeline * tensor == most) return layout_of(data, pipeline, tensor);
  }
}

std::vector<Token> tokens_of(const std::vector<GeneratedText>& texts) {
  std::vector<Token> all;
  for (const GeneratedText& text : texts) all.insert(all.end(), text.tokens.begin(), text.tokens.end()), all.push_back(-1);
  return all;
}

TEST(policy_generator, copies_on_other_layouts_write_the_same_texts) {
  std::mt19937 random(seed_of_run());
  const std::vector<Request> requests{{0, {5, 9, 2}, 2}, {7, {3}, 2}, {8, {11, 400, 3999, 6}, 2}};
  const Sampling sampling{.seed = 3, .tokens = 5, .rollouts = true};
  ProgressRecord progress_record;
  for (int trial = 0; trial < 6; ++trial) {
    Layout training = drawn_layout(random, ranks);
    training = sharded(training, random() % 2 ? Shard::optimizer : Shard::none, 4096);
    const bool some = random() % 2;
    const Mesh mesh{some ? std::vector<int>{1, 3} : std::vector<int>{0, 1, 2, 3}};
    const GenerationPlace same{Mesh::of_all(ranks), training, DType::f64, true, Mesh::of_all(ranks)},
        other{mesh, drawn_layout(random, mesh.size()), DType::f64, false, Mesh::of_all(ranks)};
    SCOPED_TRACE(fmt::format("trial {}: {} to {} on ranks {}", trial, training.text(), other.layout.text(), mesh.text()));
    EngineConfig config;
    config.model = model(), config.precision = DType::f64, config.seq_length = 8;
    AnyRig rig(config, *grid_of(training));
    const GeneratorCapacity limits{.sequences = 2, .prompt = 4, .tokens = 5, .samples = 2};
    const int rank = rig.engine.grid().position();
    Index bytes = 0;
    for (const GenerationPlace* place : {&same, &other})
      for (int r = 0; r < ranks; ++r) bytes = std::max(bytes, generation_bytes(config.model, *place, limits, r).working);
    const Arena working(Memory::activations, bytes + rank * 40'000);
    PolicyGenerator borrowing(rig.engine, same, limits, MPI_COMM_WORLD, working, progress_record);
    PolicyGenerator copying(rig.engine, other, limits, MPI_COMM_WORLD, working, progress_record);
    EXPECT_TRUE(copying.holds_copy() && !borrowing.holds_copy());
    for (const int salt : {1, 2}) {
      set_state(rig.engine, salt);
      copying.update();
      const std::vector<Token> texts = tokens_of(copying.generate(requests, sampling));
      EXPECT_EQ(texts.size(), 6u * 6);
      EXPECT_EQ(texts, tokens_of(borrowing.generate(requests, sampling))) << "weights " << salt;
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::policy_generator_suite
