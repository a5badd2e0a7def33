// SPDX-License-Identifier: BSD-3-Clause
// Tests of bf16 attention on tensor cores and its gradients against single-threaded attention in double, on a checked
// machine: ragged tiles, all supported head widths, documents, windows, and keys in one or two blocks; on GPUs with
// wgmma (sm_90) and without (sm_80).
#include "regression/cuda/attention_cases.hpp"
#include "regression/cuda/machines.hpp"

namespace gyr::testing::flash_suite {

using namespace gyr::cuda;
using namespace gyr::cuda::attention_cases;

namespace {

constexpr Index many_heads = 132;  // enough heads that each has at least one block

const Machine plain{Order::forward, 1, false};
const std::vector<Machine> machines = {{Order::forward, 1, true}, {Order::backward, 1, false}, {Order::random, 1, true}};
constexpr int ampere = 80, hopper = 90;

Machine of(int capability, Machine machine) {
  machine.capability = capability;
  return machine;
}

}  // namespace

// Rows without visible keys have lse = -infinity, which is replaced by a finite value.
std::vector<double> logarithms(std::vector<double> lse) {
  for (double& x : lse)
    if (x == -std::numeric_limits<double>::infinity()) x = -1000;
  return lse;
}

void expect_equal_to_double(const Case& c, const Machine& machine) {
  SCOPED_TRACE(fmt::format("{}, order {}, capability {}", c.name(), int(machine.order), machine.capability));
  Workbench exact, rounded;  // both draw the same random values
  const Heads<double> want(exact, c);
  const Heads<bf16> run(rounded, c);
  want.attend(exact.dev);
  const With with(machine);
  const Index before = grids_run();
  run.attend(rounded.dev);
  EXPECT_GT(grids_run(), before);
  EXPECT_LE(difference(values_of(run.out), values_of(want.out)), 1e-2);
  EXPECT_LE(difference(logarithms(values_of(run.lse)), logarithms(values_of(want.lse))), 1e-5);
}

TEST(flash, attention_matches_double_in_every_order) {
  const std::vector<Case> cases = {
      {{2, 70, 70, 2, 1, 16, 16}}, {{1, 65, 130, 2, 2, 64, 8}}, {{1, 3, 100, 1, 1, 72, 128}}, {{1, 70, 80, 4, 2, 8, 24}, 33}};
  const std::vector<Case> of_many_heads = {{{1, 30, 80, many_heads, 2, 24, 8}, 33}, {{1, 70, 80, many_heads, 2, 8, 128}}};
  const std::vector<Case> of_many_tiles = {
      {{1, 140, 400, 1, 1, 64, 64}}, {{1, 70, 410, 2, 1, 128, 128}, 300}, {{1, 200, 400, 1, 1, 40, 24}, 0, false}};
  for (const Machine& machine : machines) {
    for (const Case& c : cases)
      for (const int capability : {ampere, hopper}) expect_equal_to_double(c, of(capability, machine));
    for (const Case& c : of_many_heads) expect_equal_to_double(c, of(ampere, machine));
    for (const Case& c : of_many_tiles) expect_equal_to_double(c, of(hopper, machine));
  }
}

// Random masks: tiles may be skipped before and after the visible keys, and by only one half of a block.
TEST(flash, warpgroup_attention_matches_double_for_random_masks) {
  const std::uint64_t seed = seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 9; ++trial) {
    Case c = Case::drawn(random, Case::Reach(trial % 3), 400);
    c.shape.num_heads = c.shape.num_kv_heads, c.cap = 0;
    if (trial % 2 == 0) c.shape.keys += 300;  // more keys, so that tile buffers are reused
    expect_equal_to_double(c, of(hopper, machines[std::size_t(trial / 3) % machines.size()]));
  }
}

// On sm_80, few heads use blocks of 64 queries and many heads use blocks of 128 queries. The output bits must be equal
// for any mask.
TEST(flash, output_bits_are_independent_of_queries_per_block) {
  const std::uint64_t seed = seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  for (const auto reach : {Case::Reach::all, Case::Reach::documents, Case::Reach::window}) {
    Case few = Case::drawn(random, reach);
    few.shape.batch = 1, few.shape.num_heads = few.shape.num_kv_heads = 1, few.cap = 0;
    if (!few.positions.empty()) few.positions.resize(std::size_t(few.shape.queries));
    if (!few.ahead.empty()) few.ahead.resize(std::size_t(few.shape.queries));
    Case many = few;
    many.shape.num_heads = many_heads;
    SCOPED_TRACE(few.name());
    Workbench one, two;
    const Heads<bf16> single(one, few), among(two, many);
    const Index width = few.shape.head_dim;
    for (Index r = 0; r < few.shape.queries; ++r)
      for (Index h = 0; h < many_heads; ++h) std::copy_n(&single.q(r, 0), width, &among.q(r, h * width));
    std::copy_n(single.k.data(), single.k.span(), among.k.data());
    std::copy_n(single.v.data(), single.v.span(), among.v.data());
    const With with(of(ampere, plain));
    single.attend(one.dev), among.attend(two.dev);
    for (Index r = 0; r < few.shape.queries; ++r)
      for (const Index h : {Index(0), many_heads - 1}) {
        EXPECT_EQ(among.lse(r, h), single.lse(r, 0));
        for (Index c = 0; c < few.shape.v_head_dim; ++c)
          ASSERT_EQ(float(among.out(r, h * few.shape.v_head_dim + c)), float(single.out(r, c))) << "query " << r << ", head " << h;
      }
  }
}

// Tests the environment variable GYR_CUDA_WARPGROUPS.
TEST(flash, disabled_warpgroups_give_same_bits_as_sm80) {
  const Case c{{1, 100, 300, 2, 1, 64, 64}, 200};
  const auto bits = [&](int capability) {
    Workbench bench;
    const Heads<bf16> heads(bench, c);
    const With with(of(capability, plain));
    heads.attend(bench.dev), heads.attend_backward(bench.dev);
    auto all = heads.gradients();
    all.emplace_back("lse", values_of(heads.lse));
    return all;
  };
  const auto without = bits(ampere), by_warpgroups = bits(hopper);
  setenv("GYR_CUDA_WARPGROUPS", "off", 1);
  const auto off = bits(hopper);
  setenv("GYR_CUDA_WARPGROUPS", "no", 1);
  EXPECT_THROW(bits(hopper), Error);
  unsetenv("GYR_CUDA_WARPGROUPS");
  EXPECT_EQ(off, without);
  EXPECT_NE(by_warpgroups, without);
}

TEST(flash, gradients_match_double_in_every_order) {
  const std::uint64_t seed = seed_of_draws();
  SCOPED_TRACE(fmt::format("GYR_SEED={}", seed));
  std::mt19937_64 random(seed);
  std::vector<Case> cases = {{{1, 330, 300, 2, 1, 64, 64}, 0, false}, {{1, 64, 96, 2, 1, 128, 128}}, {{1, 30, 130, 2, 1, 16, 24}, 0, true, 0}};
  for (const auto reach : {Case::Reach::all, Case::Reach::documents, Case::Reach::window})
    for (int trial = 0; trial < 5; ++trial) {
      cases.push_back(Case::drawn(random, reach, trial < 4 ? 150 : 300));
      if (trial > 1) cases.back().cap = 0;
    }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Machine machine = of(i / machines.size() % 2 ? ampere : hopper, machines[i % machines.size()]);
    SCOPED_TRACE(fmt::format("{}, capability {}", cases[i].name(), machine.capability));
    Workbench exact, rounded;
    const Heads<double> want(exact, cases[i]);
    const Heads<bf16> have(rounded, cases[i]);
    {
      const With with(plain);
      want.attend(exact.dev), want.attend_backward(exact.dev);
      have.attend(rounded.dev);
    }
    const With with(machine);
    std::memset(rounded.dev.scratch.begin(), 0xff, std::size_t(rounded.dev.scratch.capacity()));  // scratch memory starts as NaN
    have.attend_backward(rounded.dev, std::int64_t(i + 1) % 2);
    const auto expected = want.gradients(), found = have.gradients();
    for (std::size_t g = 0; g < expected.size(); ++g) EXPECT_LE(difference(found[g].second, expected[g].second), 1e-2) << expected[g].first;
  }
}

TEST(flash, gradient_bits_are_independent_of_execution_order) {
  const Case c{{1, 100, 150, 4, 2, 64, 40}};
  for (const int capability : {ampere, hopper}) {
    std::vector<Workbench> benches(machines.size());
    std::vector<Heads<bf16>> runs;
    for (std::size_t i = 0; i < machines.size(); ++i) {
      const With with(of(capability, {machines[i].order, 5, false}));
      const Heads<bf16>& run = runs.emplace_back(benches[i], c);
      run.attend(benches[i].dev);
      // This case has few keys, so attention_backward uses one part per head of a group.
      run.attend_backward(benches[i].dev, i == 0 ? c.shape.num_heads / c.shape.num_kv_heads : 0);
      EXPECT_EQ(run.gradients(), runs[0].gradients());
    }
  }
}

// Documents that fill tiles must not interact, not even multiplied by zero: NaN in one document must not reach another.
void expect_independent(const Machine& machine, Index length, bool causal) {
  Case c{{1, 3 * length, 3 * length, 2, 1, 64, 64}};
  for (Index r = 0; r < 3 * length; ++r) c.positions.push_back(std::int32_t(r % length));
  c.causal = causal;
  if (!causal) c.ahead = gyr::testing::ahead_of(c.positions, 3 * length);
  const With with(machine);
  Workbench one, two;
  const Heads<bf16> clean(one, c), spoiled(two, c);
  for (const auto& x : {spoiled.q, spoiled.k, spoiled.v, spoiled.dout}) {
    const auto middle = rows(x, length, length);
    std::fill_n(middle.data(), middle.span(), bf16(std::numeric_limits<float>::quiet_NaN()));
  }
  for (const auto* run : {&clean, &spoiled}) run->attend(one.dev), run->attend_backward(one.dev);
  const auto equal = [&](const auto& x, const auto& y, Index first) { return same_bits(rows(x, first, length), rows(y, first, length)); };
  for (const Index first : {Index(0), 2 * length}) {
    EXPECT_TRUE(equal(spoiled.out, clean.out, first));
    EXPECT_TRUE(equal(spoiled.dq, clean.dq, first));
    EXPECT_TRUE(equal(spoiled.dk, clean.dk, first));
    EXPECT_TRUE(equal(spoiled.dv, clean.dv, first));
  }
  EXPECT_FALSE(equal(spoiled.dk, clean.dk, length));
}

TEST(flash, masked_tiles_are_skipped) {
  for (const bool causal : {true, false}) {
    expect_independent(of(ampere, plain), 64, causal);
    expect_independent(of(hopper, plain), 128, causal);
  }
}

}  // namespace gyr::testing::flash_suite
