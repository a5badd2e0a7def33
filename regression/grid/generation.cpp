// SPDX-License-Identifier: BSD-3-Clause
// Every factorization of the ranks into pipeline x tensor parallelism generates the text that one rank generates.
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/retrieval.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/texts.hpp"

namespace gyr::testing::generation_suite {
namespace {

constexpr Index made = 12;

std::vector<std::vector<Token>> written(const ModelConfig& model, Grid& grid, const Sampling& sampling, Factors factors = Factors::stored) {
  std::vector<std::vector<Token>> prompts;
  for (const Index seq_length : {5, 1, 9}) prompts.push_back(micro_batch(Index(prompts.size()), 1, seq_length, model.vocab_size).tokens);
  Generator generator(model, DType::f64, grid, {2, 9, made, factors});
  if (reads_neighbours(model)) generator.retrieve_with({drawn_search(model, 1), ChunkAlignment::end, 0});
  Device device(false, 0);
  generator.stage().fill([&](ParameterList weights, const Arrived& arrived) {
    for (const auto& p : weights) {
      assign(device, *p, WeightValues(p->weight));
      arrived(*p);
    }
  });
  // The second sequence ends early.
  return texts_of(generator, prompts, sampling, [n = 0](Index sequence, Token) mutable { return sequence == 1 && ++n == 3; });
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

TEST(generation, text_is_the_same_with_retrieved_neighbours) {
  ModelConfig model = widened(named("T2"));
  model.pattern = "P*R-MR-R", model.retrieval = {3, 2, "*X-*-"};
  expect_one_text(model);
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

// Any data-parallel rank can serve a request: replies are the same on every rank and for every number of replicas.
TEST(generation, replies_are_the_same_on_every_replica) {
  const ModelConfig model = widened(named("T2"));
  std::mt19937 random(seed_of_run());
  std::vector<Request> requests;
  for (Index id = 0; id < 7; ++id)
    requests.push_back({3 * id, micro_batch(id, 1, 1 + Index(random() % 9), model.vocab_size).tokens, 1 + Index(random() % 3)});
  Sampling sampling{1, 0, 0.95, 7, made, {5}};
  const auto replies = [&](Grid& grid) {
    Generator generator(model, DType::f64, grid, {2, 9, made, Factors::stored, 3});
    Device device(false, 0);
    for (const auto& p : generator.stage().parameters().all()) assign(device, *p, WeightValues(p->weight));
    return GenerationService(generator).serve(requests, sampling);
  };
  auto one = replies(single_rank_grid(8));
  const auto expect_same = [&](const Layout& layout) {
    Grid* grid = grid_of(layout);
    if (!grid) return;
    const auto found = replies(*grid);
    ASSERT_EQ(found.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(std::pair(found[i].id, found[i].sample), std::pair(one[i].id, one[i].sample));
      EXPECT_EQ(found[i].tokens, one[i].tokens) << layout.text();
      EXPECT_EQ(found[i].end, one[i].end);
      for (std::size_t t = 0; t < one[i].log_probs.size(); ++t) {
        EXPECT_NEAR(found[i].log_probs.at(t), one[i].log_probs[t], 1e-11);
        EXPECT_NEAR(found[i].kept.at(t), one[i].kept[t], 1e-11);
      }
    }
  };
  for (const auto& [data, pipeline, tensor] : {std::array{2, 1, 1}, {4, 1, 1}, {2, 1, 2}, {2, 2, 1}, {1, 1, 4}})
    expect_same(layout_of(data, pipeline, tensor));
  sampling.top_p = 1, sampling.rollouts = true;
  one = replies(single_rank_grid(8));
  for (const auto& [data, pipeline, tensor] : {std::array{4, 1, 1}, {1, 2, 2}, {1, 1, 4}}) expect_same(layout_of(data, pipeline, tensor));
  sync_ranks();
}

// Tensor-parallel ranks exchange bins of tokens, never logits: there is no all-gather, and the traffic of a draw does not
// grow with the vocabulary.
TEST(generation, sampling_gathers_no_logits) {
  Grid* const grid = grid_of(layout_of(1, 1, 4));
  std::vector<Index> bytes;
  for (const Index vocab_size : {64, 640}) {
    if (!grid) continue;
    ModelConfig model = widened(named("T2"));
    model.vocab_size = vocab_size;
    Communicator& tensor = grid->tensor().full();
    tensor.clear_traffic();
    for (const double top_p : {1.0, 0.9}) written(model, *grid, {1, top_p < 1 ? 20 : 0, top_p, 7, made});
    EXPECT_EQ(tensor.traffic(Operation::all_gather).calls, 0);
    bytes.push_back(tensor.traffic(Operation::all_reduce).bytes);
  }
  if (grid) {
    EXPECT_GT(bytes[0], 0);
    EXPECT_EQ(bytes[0], bytes[1]);
  }
  sync_ranks();
}

// A generator on the layout of a training engine, or on the same ranks without sequence parallelism, uses the engine's
// weights. Every rank gets the replies of a single rank. Weights that ZeRO-3 shards are refused.
TEST(generation, training_layouts_lend_their_weights) {
  EngineConfig config;
  config.model = widened(named("T2")), config.precision = DType::f64, config.seq_length = 8;
  const std::vector<Request> requests{{0, {5, 9, 2}, 2}, {1, {7}, 1}, {2, {3, 3}, 2}};
  const auto replies = [&](Grid& training, Grid& grid) {
    AnyRig rig(config, training);
    Generator generator(rig.engine, grid, {2, 3, made, Factors::stored, 2});
    return GenerationService(generator).serve(requests, {1, 0, 1, 7, made});
  };
  const auto one = replies(single_rank_grid(8), single_rank_grid(8));
  for (const Layout& layout : {sharded(layout_of(2, 1, 2), Shard::optimizer), with_sequence(layout_of(1, 2, 2)), layout_of(4, 1, 1)}) {
    Layout plain = layout;
    plain.sequence = false;
    Grid *training = grid_of(layout), *grid = grid_of(plain);
    if (!training) continue;
    const auto found = replies(*training, *grid);
    ASSERT_EQ(found.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(found[i].tokens, one[i].tokens) << layout.text();
  }
  if (Grid* grid = grid_of(sharded(layout_of(2, 1, 1), Shard::weights))) {
    const Error error = error_of([&] { replies(*grid, *grid); });
    EXPECT_NE(std::string(error.what()).find("ZeRO-3"), std::string::npos) << error.what();
  }
  if (Grid* grid = grid_of(with_sequence(layout_of(1, 1, 2)))) {
    const Error error = error_of([&] { replies(*grid, *grid); });
    EXPECT_NE(std::string(error.what()).find("without expert parallelism"), std::string::npos) << error.what();
  }
  sync_ranks();
}

INSTANTIATE_TEST_SUITE_P(T, generation, ::testing::Values("T2", "T5"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyr::testing::generation_suite
