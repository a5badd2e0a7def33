// SPDX-License-Identifier: BSD-3-Clause
// Scratch memory of a plan for GPUs. A build for hosts plans what the CUDA kernels allocate: with the emulated CUDA
// kernels (cuda_tests), these tests compare the two.
#include "kernels/ops/gpu_plan.hpp"

#include "kernels/ops/delta/gated_delta.hpp"
#include "kernels/ops/ssd_chunk.hpp"
#include "regression/planner/random_cluster.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::gpu_plan_suite {
namespace {

// Scratch of call(device) in a plan for GPUs.
template <class Call>
Index planned_scratch(const Call& call) {
  Device dev(true, 0);
  dev.gpu = true;
  call(dev);
  return dev.scratch.high_water();
}

template <class Allocate>
Index bytes_of(const Allocate& allocate) {
  Arena arena = Arena::dry_run(Memory::scratch);
  allocate(arena);
  return arena.high_water();
}

SsdShape drawn_scan(Dice& dice) {
  const Index groups = dice.between(1, 2);
  return {.batch = dice.between(1, 3),
          .seq_length = dice.between(1, 300),
          .num_heads = groups * dice.one_of<Index>({1, 3, 40}),
          .num_groups = groups,
          .head_dim = dice.one_of<Index>({4, 8, 64, 136}),
          .state_size = dice.one_of<Index>({4, 16, 128, 264}),
          .chunk_size = dice.one_of<Index>({4, 64, 100, 256}),
          .dt_low = 0,
          .dt_high = 1};
}

// Tensors of a scan in a dry run, which has no memory behind them.
template <class T>
struct Scan {
  using A = Acc<T>;
  explicit Scan(const SsdShape& s) : s(s) {}
  SsdShape s;
  Arena arena = Arena::dry_run(Memory::activations);
  Index rows = s.batch * s.seq_length, state = s.num_heads * s.head_dim * s.state_size;
  Tensor2<T> x = arena.tensor<T>(rows, s.num_heads*s.head_dim), b = arena.tensor<T>(rows, s.num_groups*s.state_size),
             dt = arena.tensor<T>(rows, s.num_heads);
  SsdSaved<A> saved{arena.tensor<A>(rows, s.num_heads), arena.tensor<A>(s.batch, s.chunks(), state)};
  Tensor2<A> last = arena.tensor<A>(s.batch, state);

  SsdInput<T> input() const { return {x, b, b, dt}; }
  void forward(Device& dev) { ssd<T>(dev, s, input(), {}, {}, x, saved, last); }
  void backward(Device& dev) { ssd_backward<T>(dev, s, input(), {}, saved, x, last, {x, b, b, dt}, {}, {}); }
  void outputs(Device& dev) { ssd_outputs<T>(dev, s, input(), {}, saved, x); }
};

template <class T>
void expect_scan_scratch(const SsdShape& s) {
  Scan<T> scan(s);
  const auto expect = [&](ScanCall call, void (Scan<T>::*run)(Device&)) {
    EXPECT_EQ(planned_scratch([&](Device& dev) { (scan.*run)(dev); }), bytes_of([&](Arena& a) { allocate_gpu_scan(a, s, dtype_of<T>(), call); }))
        << "call " << int(call) << ": " << s.batch << " x " << s.seq_length << ", heads " << s.num_heads << " x " << s.head_dim << ", groups "
        << s.num_groups << ", state " << s.state_size << ", chunk " << s.chunk_size;
  };
  expect(ScanCall::scan, &Scan<T>::forward);
  expect(ScanCall::backward, &Scan<T>::backward);
  expect(ScanCall::outputs, &Scan<T>::outputs);
}

TEST(gpu_plan, scan_scratch_equals_that_of_cuda_kernels) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 60; ++i) {
    const SsdShape s = drawn_scan(dice);
    expect_scan_scratch<bf16>(s), expect_scan_scratch<float>(s), expect_scan_scratch<double>(s);
  }
}

template <class T>
void expect_delta_scratch(const DeltaShape& s) {
  using A = Acc<T>;
  Arena arena = Arena::dry_run(Memory::activations);
  const Tensor2<T> q = arena.tensor<T>(s.rows(), s.num_groups * s.key_dim), v = arena.tensor<T>(s.rows(), s.num_heads * s.value_dim),
                   a = arena.tensor<T>(s.rows(), s.num_heads);
  const Tensor3<A> states = arena.tensor<A>(s.batch, s.chunks(), s.state_elements());
  const DeltaInput<T> in{q, q, v, a, a};
  const auto forward = [&](Device& dev) { gated_delta<T>(dev, s, in, {}, {}, v, states, {}); };
  const auto backward = [&](Device& dev) { gated_delta_backward<T>(dev, s, in, {}, states, v, {}, {q, q, v, a, a}, {}, {}); };
  EXPECT_EQ(planned_scratch(forward), bytes_of([&](Arena& scratch) { delta::GroupScratch<A>(scratch, s, false); }));
  EXPECT_EQ(planned_scratch(backward), bytes_of([&](Arena& scratch) {
              scratch.tensor<A>(s.batch, s.state_elements()), scratch.tensor<double>(s.batch, 2 * s.num_heads);
              delta::GroupScratch<A>(scratch, s, true);
            }));
}

TEST(gpu_plan, delta_rule_scratch_equals_that_of_cuda_kernels) {
  Dice dice(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    const Index groups = dice.between(1, 4), length = dice.between(1, 300);
    const DeltaShape s{dice.between(1, 3),
                       length,
                       groups * dice.between(1, 3),
                       groups,
                       dice.one_of<Index>({4, 64, 136}),
                       dice.one_of<Index>({4, 128}),
                       dice.one_of<Index>({1, 64, 256})};
    expect_delta_scratch<bf16>(s), expect_delta_scratch<float>(s), expect_delta_scratch<double>(s);
  }
}

TEST(gpu_plan, gemm_workspace_equals_that_of_cublaslt) {
  Dice dice(seed_of_run());
  Arena arena = Arena::dry_run(Memory::activations);
  for (int i = 0; i < 100; ++i) {
    const GemmExtents e{dice.between(9, 3000), dice.between(1, 3000), dice.between(1, 3000)};
    const Tensor2<bf16> x = arena.tensor<bf16>(e.m, e.k), w = arena.tensor<bf16>(e.n, e.k), y = arena.tensor<bf16>(e.m, e.n);
    EXPECT_EQ(planned_scratch([&](Device& dev) { linear<bf16>(dev, Tensor2<const bf16>(x), Tensor2<const bf16>(w), y); }),
              bytes_of([&](Arena& a) { a.push(gpu_gemm_workspace(e, DType::bf16)); }));
  }
}

TEST(gpu_plan, attention_scratch_equals_that_of_cuda_kernels) {
  Dice dice(seed_of_run());
  Arena arena = Arena::dry_run(Memory::activations);
  for (int i = 0; i < 100; ++i) {
    const Index kv_heads = dice.between(1, 4), length = dice.between(1, 600), width = dice.one_of<Index>({4, 64, 128, 136});
    const AttentionShape s{dice.between(1, 3), length, length, kv_heads * dice.one_of<Index>({1, 4, 6}), kv_heads, width, width};
    const Index rows = s.batch * length;
    const Tensor2<bf16> q = arena.tensor<bf16>(rows, s.num_heads * width), k = arena.tensor<bf16>(rows, kv_heads * width);
    const Tensor2<float> dq = arena.tensor<float>(rows, s.num_heads * width), dk = arena.tensor<float>(rows, kv_heads * width),
                         lse = arena.tensor<float>(rows, s.num_heads);
    const auto backward = [&](Device& dev) {
      attention_backward<bf16>(dev, s, Mask{}, ScoreRule(1), Tensor2<const bf16>(q), Tensor2<const bf16>(k), Tensor2<const bf16>(k), q, lse, lse, dq,
                               dk, dk);
    };
    EXPECT_EQ(planned_scratch(backward), bytes_of([&](Arena& a) { allocate_gpu_attention_backward(a, s, DType::bf16); }))
        << length << " tokens, width " << width << ", heads " << s.num_heads << "/" << kv_heads;
  }
}

// The logits of the head are the largest scratch. Their block of rows depends on the planned device, not on the build.
TEST(gpu_plan, row_blocks_depend_on_the_planned_device) {
  Device dev(true, 0);
  dev.gpu = false;
  EXPECT_EQ(gemm_row_layout(dev, 1000), 256);
  dev.gpu = true;
  EXPECT_EQ(gemm_row_layout(dev, 1000), 4096);
  EXPECT_EQ(gemm_row_layout(dev, 131072), 2048);
  EXPECT_EQ(gemm_row_layout(dev, 1 << 28), 256);
}

}  // namespace
}  // namespace gyr::testing::gpu_plan_suite
