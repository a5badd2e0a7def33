// SPDX-License-Identifier: BSD-3-Clause
// Tests of wgmma: the GEMM of operands in the descriptor layouts of PTX is correct, and typical mistakes of wgmma
// kernels are found.
#include "kernels/cuda/emulation/counts.hpp"
#include "regression/cuda/any_shape.hpp"
#include "regression/cuda/warpgroup_mma.hpp"
#include "regression/support/tensors.hpp"

namespace gyr::testing::warpgroups_suite {

using namespace gyr::cuda;
using namespace gyr::cuda::testing;

namespace {

// ---- Operand layouts of PTX ("Canonical Layouts", table; 128B Swizzling, T = 8 bf16 elements) ----

// Offset of i in a CuTe layout ((s0, s1, ...)) : ((d0, d1, ...)): the digits of i, lowest first, times the strides.
struct Digits {
  Index size, stride;
};
Index laid(Index i, std::initializer_list<Digits> digits) {
  Index at = 0;
  for (const Digits& d : digits) at += i % d.size * d.stride, i /= d.size;
  return at;
}
constexpr Index T = 8, many = 1 << 20;

// Swizzle<3, 4, 3> of a byte offset: bits [4, 7) are XORed with bits [7, 10).
Index swizzle_3_4_3(Index byte) {
  Index bits = 0;
  for (int b = 0; b < 3; ++b) bits |= ((byte >> (4 + b) & 1) ^ (byte >> (7 + b) & 1)) << (4 + b);
  return (byte & ~Index(0x70)) | bits;
}
// Offsets in elements, for a start, LBO and SBO in elements. The swizzle applies to byte addresses.
Index in_k_major(Index start, Index sbo, Index m, Index k) {
  return swizzle_3_4_3(2 * (start + laid(m, {{8, 8 * T}, {many, sbo}}) + laid(k, {{T, 1}, {many, T}}))) / 2;
}
Index in_mn_major(Index start, Index lbo, Index sbo, Index m, Index k) {
  return swizzle_3_4_3(2 * (start + laid(m, {{T, 1}, {8, T}, {many, lbo}}) + laid(k, {{8, 8 * T}, {many, sbo}}))) / 2;
}

struct Placement {
  Index a_at, b_at, leading, stride;  // offsets of a and b, LBO and SBO, in elements
};

// a (64,16) by rows (K-major) and b are placed as in the table; all other shared memory is NaN.
template <int F, Major major, bool in_registers, bool adds>
void expect_wgmma(const Placement& at) {
  SCOPED_TRACE(fmt::format("64 x {}, {}, a in {}, a at {}, b at {}, leading {}, stride {}", 8 * F, major == Major::rows ? "K-major" : "N-major",
                           in_registers ? "registers" : "shared memory", at.a_at, at.b_at, at.leading, at.stride));
  constexpr Index size = 100 << 9;
  Workbench bench;
  const auto a = bench.normal<bf16>(64, 16), b = bench.normal<bf16>(8 * F, 16);
  const auto before = bench.normal<float>(64, 8 * F);
  const auto memory = bench.arena.tensor<bf16>(size);
  std::fill_n(memory.data(), size, bf16(std::numeric_limits<float>::quiet_NaN()));
  for (Index k = 0; k < 16; ++k) {
    for (Index m = 0; m < 64; ++m) memory(in_k_major(at.a_at, at.stride, m, k)) = a(m, k);
    for (Index n = 0; n < 8 * F; ++n)
      memory(major == Major::rows ? in_k_major(at.b_at, at.stride, n, k) : in_mn_major(at.b_at, at.leading, at.stride, n, k)) = b(n, k);
  }
  std::vector<double> want;
  for (Index m = 0; m < 64; ++m)
    for (Index n = 0; n < 8 * F; ++n) {
      double sum = adds ? double(before(m, n)) : 0;
      for (Index k = 0; k < 16; ++k) sum += double(a(m, k)) * double(b(n, k));
      want.push_back(sum);
    }
  for (const Machine& machine : machines_of_every_order) {
    const With with(machine);
    const auto d = bench.zeros<float>(64, 8 * F);
    std::copy_n(before.data(), before.span(), d.data());
    const Counts counts;
    launch(bench.dev, "placed", {1, group_threads, int(size * 2)}, placed_wgmma<F, major, in_registers, adds>, Tensor1<const bf16>(memory),
           int(at.a_at), int(at.b_at), int(2 * at.leading), int(2 * at.stride), Tensor2<const bf16>(a), d);
    bench.dev.fence();
    EXPECT_LE(difference(values_of(d), want), 1e-6);
    EXPECT_EQ(counts.all().mma_instructions, 4 * F);
    EXPECT_EQ(counts.all().all_shared().conflicts(), 0);
  }
}

void multiply(Device& dev, GroupMistake mistake, Tensor2<const bf16> a, Tensor2<const bf16> b, Tensor2<float> c) {
  const Index blocks = ceil_div(c.extent(0), group_tile) * ceil_div(c.extent(1), group_tile);
  launch(dev, "product", {blocks, GroupMma::threads, GroupMma::shared_bytes}, warpgroup_mma, mistake, a, b, c);
}

}  // namespace

// Descriptor fields as in PTX, "Matrix Descriptor Format".
TEST(warpgroups, descriptors_have_ptx_fields) {
  std::mt19937_64 random(seed_of_draws());
  for (int trial = 0; trial < 100; ++trial) {
    const auto drawn = [&] { return std::uint32_t(random() % (1 << 14)) << 4; };
    const std::uint32_t address = drawn(), leading = drawn(), stride = drawn(), on = std::uint32_t(random() % 64) << 4;
    const std::uint64_t bits = bits_of(place_at(address, int(leading), int(stride)));
    const auto field = [&](int low, int high) { return bits >> low & ((std::uint64_t(1) << (high - low + 1)) - 1); };
    EXPECT_EQ(field(0, 13), address >> 4);
    EXPECT_EQ(field(16, 29), leading >> 4);
    EXPECT_EQ(field(32, 45), stride >> 4);
    EXPECT_EQ(field(49, 51), 0u);  // base offset is 0
    EXPECT_EQ(field(62, 63), 1u);  // swizzle mode is 128 bytes
    EXPECT_EQ(field(14, 15) + field(30, 31) + field(46, 48) + field(52, 61), 0u);
    const bool inside = address + on < 1 << 18;
    EXPECT_TRUE(!inside || bits_of(moved(place_at(address, int(leading), int(stride)), int(on))) == bits + (on >> 4));
  }
}

TEST(warpgroups, wgmma_reads_operands_at_ptx_layout) {
  // Operands that start right after each other, and operands that start inside a 64-column row along k.
  expect_wgmma<8, Major::rows, false, true>({0, 4096, 0, 512});
  expect_wgmma<16, Major::rows, false, false>({4096 + 16, 8192 + 16, 0, 512});
  expect_wgmma<16, Major::rows, true, true>({0, 16384 + 48, 0, 1024});
  expect_wgmma<8, Major::columns, true, true>({0, 4096, 8192, 512});
  expect_wgmma<16, Major::columns, true, false>({0, 4096, 8192, 512});
  expect_wgmma<16, Major::columns, false, true>({32, 8192 + 1024, 4096, 512});
  expect_wgmma<16, Major::columns, true, true>({0, 8192, 512, 1024});
}

TEST(warpgroups, wgmma_matches_reference_for_any_shape_and_order) {
  expect_gemms_of_any_shape(40, [](Device& dev, const auto& a, const auto& b, const auto& c) {
    const Counts counts;
    multiply(dev, GroupMistake::none, a, b, c);
    dev.fence();
    EXPECT_EQ(counts.all().all_shared().conflicts(), 0) << counts.all().conflicts();
  });
}

TEST(warpgroups, kernel_mistakes_are_found) {
  const struct {
    GroupMistake mistake;
    const char* found;
  } mistakes[] = {{GroupMistake::no_wait_for_copies, "that was not waited for"},
                  {GroupMistake::no_fence_after_copies, "has issued no proxy fence"},
                  {GroupMistake::comes_before_copies, "byte"},
                  {GroupMistake::no_wait_for_a_full_place, "of shared memory"},
                  {GroupMistake::leaves_a_place_too_early, "shared memory"},
                  {GroupMistake::no_fence_of_registers, "since the last fence"},
                  {GroupMistake::registers_change_after_the_fence, "since the last fence"},
                  {GroupMistake::comes_twice, "again before all others have arrived"},
                  {GroupMistake::comes_with_another_count, "is used with"}};
  for (const auto& [mistake, found] : mistakes) {
    SCOPED_TRACE(int(mistake));
    expect_found_in_every_order(320, found, [&](Device& dev, const auto& a, const auto& b, const auto& c) { multiply(dev, mistake, a, b, c); });
  }
}

// Accumulators are NaN on any machine if a wgmma is not waited for. Tiles without the swizzle give wrong results.
TEST(warpgroups, accumulators_are_nan_without_wgmma_wait) {
  Workbench bench;
  const auto a = bench.normal<bf16>(64, 64), b = bench.normal<bf16>(64, 64);
  for (const Machine& machine : machines_of_every_order)
    for (const auto mistake : {GroupMistake::no_wait_for_wgmmas, GroupMistake::waits_for_one_group_less}) {
      const With with(machine);
      const auto c = bench.zeros<float>(64, 64);
      multiply(bench.dev, mistake, a, b, c);
      bench.dev.fence();
      for (const double x : values_of(c)) ASSERT_TRUE(std::isnan(x));
    }
  const auto right = bench.zeros<float>(64, 64), wrong = bench.zeros<float>(64, 64);
  multiply(bench.dev, GroupMistake::none, a, b, right);
  multiply(bench.dev, GroupMistake::tile_is_not_swizzled, a, b, wrong);
  bench.dev.fence();
  EXPECT_GT(difference(values_of(wrong), values_of(right)), 0.1);
}

}  // namespace gyr::testing::warpgroups_suite
