// SPDX-License-Identifier: BSD-3-Clause
// Mixer parallelism: which tensor-parallel ranks may compute attention and which the SSM, and at what cost. Compared
// with the layouts that the program accepts and the FLOPs of a dry run.
#include "src/config/mixer_split.hpp"

#include <set>

#include "regression/support/testing.hpp"
#include "src/engine/dry_run/plan.hpp"

namespace gyr::testing::mixer_split_suite {
namespace {

struct Shape {
  Index heads, keys, ssm_heads, groups;
};

ModelConfig model_of(const Shape& s) {
  ModelConfig m;
  m.pattern = "PP";
  m.hidden_size = 8, m.vocab_size = 32;
  m.attention.num_heads = s.heads, m.attention.num_kv_heads = s.keys, m.attention.head_dim = 4;
  m.mamba.num_heads = s.ssm_heads, m.mamba.num_groups = s.groups, m.mamba.head_dim = 4, m.mamba.state_size = 4;
  m.mlp.intermediate_size = 48;
  return m;
}

Layout layout_of(int tensor, int attention_ranks, Index layers) {
  Layout layout = grid_layout(1, 1, tensor, {{0, layers}});
  layout.attention_ranks = attention_ranks;
  return layout;
}

EngineConfig config_of(const ModelConfig& m, Index seq_length) {
  EngineConfig c;
  c.model = m, c.precision = DType::f32;
  c.micro_batch_size = 1, c.seq_length = seq_length, c.micros = 1;
  return c;
}

bool refused(const ModelConfig& m, int tensor, int attention_ranks) {
  try {
    for (const int rank : {0, tensor - 1}) plan_rank(config_of(m, 5), layout_of(tensor, attention_ranks, m.layers()), rank);
    return false;
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config) << e.what();
    return true;
  }
}

ParallelConfig parallel_of(Mixer mixer, int tensor, int attention_ranks = 0) {
  ParallelConfig p{};
  p.mixer = mixer, p.tensor = tensor, p.attention_ranks = attention_ranks;
  return p;
}

TEST(mixer_split, listed_splits_are_exactly_the_accepted_ones) {
  for (const Shape& s : {Shape{8, 2, 24, 1}, Shape{6, 6, 6, 3}, Shape{4, 1, 4, 2}, Shape{12, 2, 5, 5}, Shape{1, 1, 1, 1}, Shape{10, 2, 32, 2}})
    for (const int tensor : {2, 3, 4, 6, 8}) {
      const ModelConfig m = model_of(s);
      std::set<int> listed;
      for (const MixerSplit& mixer_split : mixer_splits(m, 5, tensor)) listed.insert(mixer_split.attention_ranks);
      for (int n = 1; n < tensor; ++n)
        EXPECT_EQ(listed.contains(n), !refused(m, tensor, n))
            << s.heads << " " << s.keys << " " << s.ssm_heads << " " << s.groups << ": " << n << " of " << tensor;
    }
}

// The two groups of ranks differ only in their mixer. Forward and backward together cost three times the forward FLOPs.
TEST(mixer_split, predicted_flops_match_a_dry_run) {
  ModelConfig m;
  m.pattern = "PPPP", m.hidden_size = 512, m.vocab_size = 64;
  m.attention.num_heads = 8, m.attention.num_kv_heads = 2, m.attention.head_dim = 64;
  m.mamba.num_heads = 24, m.mamba.num_groups = 1, m.mamba.head_dim = 32, m.mamba.state_size = 64, m.mamba.chunk_size = 64;
  const Index tokens = 1024;
  for (const int tensor : {2, 4, 8})
    for (const MixerSplit& mixer_split : mixer_splits(m, tokens, tensor)) {
      const auto flops = [&](int rank) {
        return plan_rank(config_of(m, tokens), layout_of(tensor, mixer_split.attention_ranks, m.layers()), rank).flops;
      };
      const double counted = (flops(0) - flops(tensor - 1)) / double(3 * tokens * m.layers());
      EXPECT_NEAR(counted, mixer_split.attention - mixer_split.ssm, 0.15 * mixer_split.slowest()) << mixer_split.attention_ranks << " of " << tensor;
    }
}

TEST(mixer_split, chosen_split_minimizes_flops_of_slowest_rank) {
  const ModelConfig m = model_of({8, 2, 24, 1});
  for (const int tensor : {2, 4, 8}) {
    const MixerSplit joint = both_mixers_on_all_ranks(m, 64, tensor);
    const int separate = attention_ranks_of(parallel_of(Mixer::separate, tensor), m, 64),
              chosen = attention_ranks_of(parallel_of(Mixer::automatic, tensor), m, 64);
    double least = 0;
    for (const MixerSplit& mixer_split : mixer_splits(m, 64, tensor))
      if (mixer_split.attention_ranks == separate) least = mixer_split.slowest();
    ASSERT_GT(least, 0);
    for (const MixerSplit& mixer_split : mixer_splits(m, 64, tensor)) EXPECT_GE(mixer_split.slowest(), least);
    EXPECT_EQ(chosen, least < joint.slowest() ? separate : 0);
    EXPECT_EQ(attention_ranks_of(parallel_of(Mixer::split, tensor), m, 64), 0);
  }
}

TEST(mixer_split, impossible_splits_are_refused_with_alternatives) {
  const ModelConfig m = model_of({8, 2, 24, 1});
  const auto complaint = [&](const ParallelConfig& p, const ModelConfig& model) -> std::string {
    try {
      attention_ranks_of(p, model, 64);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::config);
      return e.what();
    }
  };
  EXPECT_NE(complaint(parallel_of(Mixer::separate, 8, 3), m).find("valid numbers: 2, 4"), std::string::npos);
  EXPECT_NE(complaint(parallel_of(Mixer::split, 8, 4), m).find("set parallel.mixer to apart or auto and"), std::string::npos);
  EXPECT_NE(complaint(parallel_of(Mixer::separate, 4, 4), m).find("leaves none of parallel.tensor = 4"), std::string::npos);
  EXPECT_EQ(attention_ranks_of(parallel_of(Mixer::automatic, 2), model_of({8, 2, 3, 1}), 64), 1) << "3 SSM heads cannot be split over 2 ranks";
  EXPECT_NE(complaint(parallel_of(Mixer::separate, 1), m).find("parallel.tensor to 2 or more"), std::string::npos);
  ModelConfig single = m;
  single.pattern = "M*-";
  EXPECT_NE(complaint(parallel_of(Mixer::separate, 2), single).find("model.pattern has no P"), std::string::npos);
  EXPECT_EQ(complaint(parallel_of(Mixer::automatic, 2), single), "");
  EXPECT_NE(complaint(parallel_of(Mixer::separate, 4), model_of({5, 5, 5, 5})).find("no number of attention ranks is valid"), std::string::npos);
}

}  // namespace
}  // namespace gyr::testing::mixer_split_suite
