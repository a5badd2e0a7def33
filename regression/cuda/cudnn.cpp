// SPDX-License-Identifier: BSD-3-Clause
// Tests of attention by cuDNN, which is emulated by plain loops: the description passed to cuDNN (shapes, rows,
// windows, groups, parts) is correct, the memory is that of a dry run, and unsupported cases use the own kernels. Plans
// of the real cuDNN are tested by cudnn.sh.
#include "kernels/cuda/attention/cudnn_attention.hpp"

#include "kernels/cuda/emulation/fused_attention.hpp"
#include "kernels/device/device_graph.hpp"
#include "regression/cuda/attention_cases.hpp"
#include "regression/cuda/machines.hpp"
#include "regression/support/seed.hpp"

namespace gyr::testing::cudnn_suite {

using namespace gyr::cuda;
using namespace gyr::cuda::attention_cases;

namespace {

class Asked {  // selects cuDNN ("cudnn") or the own kernels ("own") until the end of the scope
 public:
  explicit Asked(const char* whose) { setenv("GYR_CUDA_ATTENTION", whose, 1); }
  ~Asked() { unsetenv("GYR_CUDA_ATTENTION"); }
};

// True if cuDNN supports the case, derived from the keys that each query sees.
bool covered(const Case& c, bool forward) {
  const AttentionShape& s = c.shape;
  const bool sees_all = [&] {
    for (Index i = 0; i < s.queries; ++i)
      for (Index j = 0; j < s.keys; ++j) {
        const Index back = c.first_query + i - j, window = c.window > 0 ? c.window : Index(1) << 40;
        if ((c.causal && back < 0) || back >= window || -back >= window) return false;
      }
    return true;
  }();
  const bool band = sees_all || (c.first_query == 0 && (c.window == 0 || s.queries <= s.keys));
  return band && c.cap == 0 && c.positions.empty() && s.queries > 1 && (c.first_block_keys == 0 || !forward);
}

// Random case; many of them are supported by cuDNN.
Case drawn(std::mt19937_64& random) {
  Case c = Case::drawn(random, Case::Reach(random() % 3), 100);
  if (random() % 4 != 0) c.first_query = 0, c.first_block_keys = 0, c.cap = 0, c.positions.clear(), c.ahead.clear();
  if (random() % 2) c.shape.keys = c.shape.queries + Index(random() % 20), c.first_block_keys = std::min(c.first_block_keys, c.shape.keys - 1);
  if (random() % 4 == 0) c.shape.head_dim = 8 * Index(1 + random() % 32), c.shape.v_head_dim = 8 * Index(1 + random() % 32);
  return c;
}

struct Found {
  std::vector<double> out, lse;
  std::vector<std::pair<const char*, std::vector<double>>> gradients;
  Index calls_forward, calls_backward;  // number of calls to cuDNN
  Index scratch;
};
template <class T>
Found found(const Case& c) {
  Workbench bench;
  const Heads<T> heads(bench, c);
  const Index before = fused_calls();
  std::memset(bench.dev.scratch.begin(), 0xff, std::size_t(bench.dev.scratch.capacity()));  // scratch memory starts as NaN
  heads.attend(bench.dev);
  const Index between = fused_calls();
  heads.attend_backward(bench.dev);
  std::vector<double> lse = values_of(heads.lse);
  for (double& x : lse)
    if (x == -std::numeric_limits<double>::infinity()) x = -1000;  // rows without visible keys
  return {values_of(heads.out), lse, heads.gradients(), between - before, fused_calls() - between, bench.dev.scratch.high_water()};
}

const AttentionShape small{2, 40, 40, 4, 2, 16, 24};

}  // namespace

TEST(cudnn, supported_cases_match_attention_in_double) {
  std::mt19937_64 random(gyr::testing::seed_of_run());
  int covered_cases = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const Case c = drawn(random);
    SCOPED_TRACE(c.name());
    const Found want = found<double>(c);
    const Asked asked("cudnn");
    const With with({Order::random, std::uint64_t(trial), trial % 2 == 0});
    const Found have = found<bf16>(c);
    EXPECT_LE(difference(have.out, want.out), 1e-2);
    EXPECT_LE(difference(have.lse, want.lse), 1e-5);
    for (std::size_t g = 0; g < want.gradients.size(); ++g)
      EXPECT_LE(difference(have.gradients[g].second, want.gradients[g].second), 1e-2) << want.gradients[g].first;
    if (c.first_block_keys > 0) continue;  // with two key blocks, one of them may be supported
    EXPECT_EQ(have.calls_forward, covered(c, true) ? 1 : 0);
    EXPECT_EQ(have.calls_backward > 0, covered(c, false));
    covered_cases += covered(c, true);
  }
  EXPECT_GT(covered_cases, 6);
}

TEST(cudnn, cudnn_is_unused_if_disabled_or_before_sm90) {
  std::mt19937_64 random(gyr::testing::seed_of_run());
  for (int trial = 0; trial < 6; ++trial) {
    const Case c = drawn(random);
    SCOPED_TRACE(c.name());
    const With with({.capability = 80});
    const Found unfused = found<bf16>(c);
    for (const char* whose : {"own", "cudnn"}) {
      const Asked asked(whose);
      const Found other = found<bf16>(c);
      EXPECT_EQ(other.calls_forward + other.calls_backward, 0);
      EXPECT_EQ(other.out, unfused.out);
      EXPECT_EQ(other.gradients, unfused.gradients);
    }
  }
  const Asked asked("flash");
  EXPECT_THROW(found<bf16>(Case{small}), Error);
}

// A dry run takes the same memory as a run on every GPU.
TEST(cudnn, scratch_memory_matches_dry_run) {
  const Asked asked("cudnn");
  std::mt19937_64 random(gyr::testing::seed_of_run());
  for (int trial = 0; trial < 12; ++trial) {
    Case c = drawn(random);
    c.first_block_keys = 0;
    SCOPED_TRACE(c.name());
    Workbench bench;
    const Heads<bf16> heads(bench, c);
    Device dry(true, 0);
    heads.attend(dry), heads.attend_backward(dry);
    for (const int capability : {90, 80}) {
      Machine machine = Machine::instance();
      machine.capability = capability;
      const With with(machine);
      EXPECT_EQ(found<bf16>(c).scratch, dry.scratch.high_water());
    }
  }
}

// Gradients are computed in parts if the workspace is too small: full sequences, or some key heads of one sequence. If
// it is too small for one key head, cuDNN is not used.
TEST(cudnn, split_gradients_have_same_bits_as_unsplit) {
  const AttentionShape s{4, 30, 50, 12, 6, 16, 8};
  Workbench bench;
  const Case c{.shape = s, .causal = false, .first_query = 0};
  const Heads<bf16> heads(bench, c);
  heads.attend(bench.dev);
  attention_delta<bf16>(bench.dev, s, heads.dout, heads.out, heads.delta);
  const Asked asked("cudnn");
  const auto planned = backend::fused_attention(s, c.mask(0), heads.scale(), heads.q, heads.k, heads.v);
  ASSERT_TRUE(planned);
  const auto gradients = [&](Index most) {
    const Scope scope(bench.dev.scratch);
    const auto call = backend::FusedBackwardCall::made(bench.dev.scratch, *planned, most);
    std::vector<double> all;
    if (!call) return std::pair(all, Index(0));
    for (const auto& x : {heads.dq, heads.dk, heads.dv}) std::fill_n(x.data(), x.span(), 0.0f);
    const Index before = fused_calls();
    EXPECT_TRUE(call->run(bench.dev, heads.q, heads.k, heads.v, heads.dout, heads.lse, heads.delta, heads.dq, heads.dk, heads.dv));
    for (const auto& x : {heads.dq, heads.dk, heads.dv}) {
      const std::vector<double> part = values_of(x);
      all.insert(all.end(), part.begin(), part.end());
    }
    return std::pair(all, fused_calls() - before);
  };
  const auto bytes = [&](Index sequences, Index kv_heads) {
    FusedAttention part = *planned;
    part.batch = sequences, part.num_kv_heads = kv_heads, part.num_heads = 2 * kv_heads;
    return backward_workspace(part);
  };
  const auto [full, once] = gradients(bytes(4, 6));
  EXPECT_EQ(once, 1);
  const std::vector<std::pair<Index, Index>> limits = {
      {bytes(4, 6) - 1, 2}, {bytes(1, 6), 4}, {bytes(1, 6) - 1, 8}, {bytes(1, 2), 12}, {bytes(1, 1), 24}};
  for (const auto& [limit, parts] : limits) {
    const auto [same, calls] = gradients(limit);
    EXPECT_EQ(calls, parts);
    EXPECT_EQ(same, full);
  }
  EXPECT_EQ(gradients(bytes(1, 1) - 1).second, 0);
}

TEST(cudnn, graph_replay_gives_same_bits_as_direct_launch) {
  const Asked asked("cudnn");
  const Case c{small};
  const Found want = found<bf16>(c);
  ASSERT_EQ(want.calls_forward, 1);
  Workbench bench;
  const Heads<bf16> heads(bench, c);
  DeviceGraph graph;
  graph.capture(bench.dev.queue, [&] { heads.attend(bench.dev), heads.attend_backward(bench.dev); });
  EXPECT_NE(values_of(heads.out), want.out);
  graph.launch(bench.dev.queue);
  bench.dev.fence();
  EXPECT_EQ(values_of(heads.out), want.out);
  EXPECT_EQ(heads.gradients(), want.gradients);
}

}  // namespace gyr::testing::cudnn_suite
