// SPDX-License-Identifier: BSD-3-Clause
// Every factorization of the ranks into pipeline x tensor parallelism generates the text that one rank generates.
#include "regression/support/cases.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"
#include "src/engine/generate/generator.hpp"

namespace gyr::testing::generation_suite {
namespace {

constexpr Index made = 12;

std::vector<std::vector<Token>> written(const ModelConfig& model, Grid& grid, const Sampling& sampling, Factors factors = Factors::stored) {
  std::vector<std::vector<Token>> prompts;
  for (const Index seq_length : {5, 1, 9}) prompts.push_back(micro_batch(Index(prompts.size()), 1, seq_length, model.vocab_size).tokens);
  Generator generator(model, DType::f64, grid, {2, {1, 5, 9}, made, factors});
  Device device(false, 0);
  generator.stage().fill([&](ParameterList weights, const Arrived& arrived) {
    for (const auto& p : weights) {
      assign(device, *p, WeightValues(p->weight));
      arrived(*p);
    }
  });
  // The second sequence ends early.
  return generator.generate(prompts, sampling, [n = 0](Index sequence, Token) mutable { return sequence == 1 && ++n == 3; });
}

class generation : public ::testing::TestWithParam<std::string> {};

void expect_one_text(const ModelConfig& model) {
  for (const double temperature : {0.0, 1.0}) {
    const Sampling sampling{temperature, 0, 1, 7, made};
    const auto one = written(model, single_rank_grid(8), sampling);
    EXPECT_EQ(one[1].size(), 3u);
    EXPECT_EQ(one[2].size(), std::size_t(made));
    for (const int ranks : {2, 4, 8})
      for (int tensor = 1; tensor <= ranks; tensor *= 2) {
        Grid* grid = grid_of(layout_of(1, ranks / tensor, tensor));
        if (!grid) continue;
        EXPECT_EQ(written(model, *grid, sampling), one) << "pipeline " << ranks / tensor << " tensor " << tensor;
      }
  }
  sync_ranks();
}

TEST_P(generation, text_is_the_same_on_every_factorisation) { expect_one_text(widened(named(GetParam()))); }

// More tensor-parallel ranks than heads: some ranks hold part of a head's channels, and some the same channels as their
// neighbour.
TEST(generation, text_is_the_same_with_replicated_heads) {
  ModelConfig model = narrowed(named("T2"));
  model.mamba.norm = SsmNorm::gate_first;
  expect_one_text(model);
}

TEST(generation, text_is_the_same_with_experts) {
  ModelConfig model = widened(named("T2"));
  model.pattern = "PE*EMEE-", model.moe.intermediate_size = 24, model.moe.shared_intermediate_size = 16;
  expect_one_text(model);
}

TEST(generation, text_is_the_same_with_window_attention) {
  ModelConfig model = widened(named("T2"));
  model.pattern = "W-*-WMWP";
  for (const Index window : {1, 4, 9, 50}) {
    model.window.size = window;
    expect_one_text(model);
  }
}

// With CUDA graphs, the traffic of replayed operations is counted as if each had been launched on its own.
TEST(generation, graph_replay_counts_the_same_traffic) {
  const ModelConfig model = widened(named("T2"));
  Grid* const grid = grid_of(layout_of(1, 1, 4));
  if (grid) {
    const auto moved = [&](const char* graphs) {
      setenv("GYR_CUDA_GRAPHS", graphs, 1);
      const Traffic before = grid->tensor().full().traffic(Operation::all_reduce);
      written(model, *grid, {0, 0, 1, 7, made});
      unsetenv("GYR_CUDA_GRAPHS");
      const Traffic after = grid->tensor().full().traffic(Operation::all_reduce);
      return std::pair(after.calls - before.calls, after.bytes - before.bytes);
    };
    const auto moved_bytes = moved("off");
    EXPECT_GT(moved_bytes.first, made);
    EXPECT_EQ(moved("on"), moved_bytes);
  }
  sync_ranks();
}

// int8 weights are sharded by layers without change, and by rows. A column shard whose width is no multiple of 64 has
// its own quantization blocks.
TEST(generation, int8_text_is_the_same_with_pipeline_parallel) {
  for (const char* pattern : {"PPPPPPPP", "PE*EMEE-"}) {
    ModelConfig model = widened(named("T2"));
    model.pattern = pattern, model.moe.intermediate_size = 24, model.moe.shared_intermediate_size = 16;
    const Sampling sampling{0, 0, 1, 7, made};
    const auto one = written(model, single_rank_grid(8), sampling, Factors::int8);
    for (const int ranks : {2, 4})
      if (Grid* grid = grid_of(layout_of(1, ranks, 1))) {
        EXPECT_EQ(written(model, *grid, sampling, Factors::int8), one) << ranks;
      }
  }
  sync_ranks();
}

INSTANTIATE_TEST_SUITE_P(T, generation, ::testing::Values("T2", "T5"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyr::testing::generation_suite
